"""Decoder of Kubernetes' protobuf bodies into the JSON form of the same object.

Go clients send built-in kinds this way: a magic prefix, an envelope with apiVersion and kind, and the object itself,
whose field numbers are in `types/*.idl`. The result still contains the zeros that Go writes for absent fields; the
canonical form of the kind drops them, as it does for JSON.

Unknown fields are skipped, as protobuf requires; groups, which no client sends, are not supported. Text that is not
UTF-8 is repaired as Go's JSON decoder does. Lengths are checked before use, and nesting is limited.
"""

from __future__ import annotations

import base64
import codecs
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from remuda.apiserver.kinds.idl import IdlField, MessageType, message, resolve
from remuda.apiserver.resource import Obj
from remuda.apiserver.schema.depth import too_deep

MAGIC = b"k8s\x00"
_MAX_DEPTH = 200
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = memoryview(b"")
_MENDED = "remuda-protobuf"

Wire = tuple[int, int, Any]  # number, wire type, varint or bytes
Read = Callable[[int, Any, int], Any]  # (wire type, value, depth)


def _mend(error: UnicodeError) -> tuple[str, int]:
    """Replace every byte that is not UTF-8 by one U+FFFD."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(_MENDED, _mend)


class Malformed(ValueError):
    """Body that is not valid protobuf of this form."""


class Unfit(ValueError):
    """Object of an unknown kind, or one that does not match its kind."""

    def __init__(self, api_version: str, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.api_version = api_version
        self.kind = kind


def decode(body: bytes, api_version: str = "", kind: str = "") -> Obj:
    """Decode the object in a request's body. Its apiVersion and kind default to the given ones.

    Raise Malformed if the body is no Kubernetes object, Unfit if the object does not match its kind.
    """
    named, content = _open(body)
    api_version, kind = named.get(1) or api_version, named.get(2) or kind
    type_ = _type_of(api_version, kind)
    try:
        obj = _reader(type_)(_BYTES, content, 0)
    except (Malformed, OverflowError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise Unfit(api_version, kind, str(error)) from None
    except RecursionError:
        raise Unfit(api_version, kind, "nested too deeply") from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def _open(body: bytes) -> tuple[dict[int, str], memoryview]:
    """Return the envelope's apiVersion and kind, by field number, and its content."""
    if not body:
        raise Malformed("empty data")
    if not body.startswith(MAGIC):
        prefix = " ".join(map(str, MAGIC))
        raise Malformed(f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]")
    if len(body) == len(MAGIC):
        raise Malformed("empty body")
    envelope = {n: value for n, wire, value in _fields(memoryview(body)[len(MAGIC) :]) if wire == _BYTES}
    named = {n: _string(wire, value, 0) for n, wire, value in _fields(envelope.get(1, _NOTHING)) if n in (1, 2)}
    return named, envelope.get(2, _NOTHING)


def _type_of(api_version: str, kind: str) -> MessageType:
    group, _, version = api_version.rpartition("/")
    if kind == "DeleteOptions":  # clients send it with the version of the deleted object
        group, version = "meta.k8s.io", "v1"
    try:
        return message(group, version, kind)
    except (KeyError, FileNotFoundError):
        problem = f'no kind "{kind}" is registered for version "{api_version}"'
        raise Unfit(api_version, kind, problem) from None


# ---- the wire ------------------------------------------------------------------------------------------------------


def _fields(data: Any) -> Iterator[Wire]:
    """Return the fields of a message, whose content must be bytes and not a number."""
    if not isinstance(data, memoryview):
        raise Malformed("a message is expected")
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Malformed(f"unknown wire type {wire}")
        if size > end - at:
            raise Malformed("unexpected EOF")
        yield key >> 3, wire, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise Malformed("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed("a number is too long")


# ---- messages ------------------------------------------------------------------------------------------------------


@cache
def _message_reader(file: str, name: str) -> Read:
    """Return the reader of a message. Created at first reference and filled at first use, because messages contain each
    other.
    """
    members: dict[int, Callable[[Obj, int, Any, int], None]] = {}

    def read(wire: int, value: Any, depth: int) -> Any:
        if wire != _BYTES:
            raise Malformed("a message is expected")
        if depth > _MAX_DEPTH:
            raise Malformed("nested too deeply")
        if not members:
            found = resolve(f"{file}.{name}")
            assert isinstance(found, MessageType)
            members.update({field.number: _member(field) for field in found.fields if field.number})
            members.setdefault(0, _skip)
        obj: Obj = {}
        for number, kind, content in _fields(value):
            members.get(number, _skip)(obj, kind, content, depth + 1)
        return obj

    return read


def _skip(obj: Obj, wire: int, value: Any, depth: int) -> None: ...


def _reader(type_: MessageType) -> Read:
    return _message_reader(type_.file, type_.name)


def _member(field: IdlField) -> Callable[[Obj, int, Any, int], None]:
    form, name = field.form, field.name
    read = _type_reader(form.type)
    if form.inline:
        return lambda obj, wire, value, depth: obj.update(read(wire, value, depth))
    if form.container == "list":
        return _list_member(name, read, packed=form.type in ("int32", "int64", "bool"))
    if form.container == "map":
        return _map_member(name, read)

    def single(obj: Obj, wire: int, value: Any, depth: int) -> None:
        obj[name] = read(wire, value, depth)

    return single


def _list_member(name: str, read: Read, *, packed: bool) -> Callable[[Obj, int, Any, int], None]:
    def append(obj: Obj, wire: int, value: Any, depth: int) -> None:
        items = obj.setdefault(name, [])
        if packed and wire == _BYTES:
            at = 0
            while at < len(value):
                number, at = _varint(value, at)
                items.append(read(_VARINT, number, depth))
        else:
            items.append(read(wire, value, depth))

    return append


def _map_member(name: str, read: Read) -> Callable[[Obj, int, Any, int], None]:
    def put(obj: Obj, wire: int, value: Any, depth: int) -> None:
        if wire != _BYTES:
            raise Malformed("a map entry is expected")
        key, held = "", read(_BYTES, _NOTHING, depth) if read is not _bool and read is not _int else 0
        for number, kind, content in _fields(value):
            if number == 1:
                key = _string(kind, content, depth)
            elif number == 2:
                held = read(kind, content, depth)
        obj.setdefault(name, {})[key] = held

    return put


def _type_reader(type_: str) -> Read:
    scalar = _SCALARS.get(type_)
    if scalar is not None:
        return scalar
    found = resolve(type_)
    if isinstance(found, MessageType):
        return _reader(found)
    if isinstance(found, str):  # a list wrapped in its own message
        return _wrapped(_type_reader(found))
    return _string  # an enum


def _wrapped(read: Read) -> Read:
    def read_list(wire: int, value: Any, depth: int) -> Any:
        return [read(kind, content, depth) for number, kind, content in _fields(value) if number == 1]

    return read_list


# ---- scalars -------------------------------------------------------------------------------------------------------


def _string(wire: int, value: Any, depth: int) -> str:
    if wire != _BYTES:
        raise Malformed("text is expected")
    return str(value, "utf-8", _MENDED)


def _bytes(wire: int, value: Any, depth: int) -> str:
    if wire != _BYTES:
        raise Malformed("bytes are expected")
    return base64.b64encode(value).decode()


def _int(wire: int, value: Any, depth: int) -> int:
    if wire != _VARINT:
        raise Malformed("a number is expected")
    number: int = value
    return number - (1 << 64) if number >= 1 << 63 else number


def _bool(wire: int, value: Any, depth: int) -> bool:
    return _int(wire, value, depth) != 0


def _double(wire: int, value: Any, depth: int) -> float:
    if wire != _FIXED64:
        raise Malformed("a floating-point number is expected")
    number: float = struct.unpack("<d", value)[0]
    return number


def _moment(value: Any) -> datetime | None:
    """Convert seconds and nanoseconds since the epoch. An empty message is the zero time, which JSON shows as null."""
    parts = {number: _int(kind, content, 0) for number, kind, content in _fields(value)}
    if not parts.get(1) and not parts.get(2):
        return None
    return _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)


def _time(wire: int, value: Any, depth: int) -> str | None:
    moment = _moment(value)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else None


def _micro_time(wire: int, value: Any, depth: int) -> str | None:
    moment = _moment(value)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment is not None else None


def _only(number: int, read: Read) -> Read:
    """Return a reader for a message of which only one field matters."""

    def inner(wire: int, value: Any, depth: int) -> Any:
        found = read(_BYTES, _NOTHING, depth) if read is not _int else 0
        for at, kind, content in _fields(value):
            if at == number:
                found = read(kind, content, depth)
        return found

    return inner


def _int_or_string(wire: int, value: Any, depth: int) -> int | str:
    parts = {number: (kind, content) for number, kind, content in _fields(value)}
    is_text = _int(*parts.get(1, (_VARINT, 0)), depth) == 1
    return _string(*parts.get(3, (_BYTES, _NOTHING)), depth) if is_text else _int(*parts.get(2, (_VARINT, 0)), depth)


def _raw_json(wire: int, value: Any, depth: int) -> Any:
    raw: Any = _NOTHING
    for number, kind, content in _fields(value):
        if number == 1 and kind != _BYTES:
            raise Malformed("JSON is expected")
        if number == 1:
            raw = content
    found = msgspec.json.decode(raw) if raw else None
    if too_deep(found):
        raise Malformed("nested too deeply")
    return found


def _schema_or(other: Callable[[list[Wire], int], Any]) -> Read:
    """Return a reader for JSONSchemaPropsOr…: a schema in one field, or an alternative in another."""

    def read(wire: int, value: Any, depth: int) -> Any:
        parts = list(_fields(value))
        return other(parts, depth)

    return read


def _schema(wire: int, value: Any, depth: int) -> Any:
    return _message_reader("apiextensions", "JSONSchemaProps")(wire, value, depth)


def _or_bool(parts: list[Wire], depth: int) -> Any:
    schemas = [_schema(kind, content, depth) for number, kind, content in parts if number == 2]
    allows = any(_bool(kind, content, depth) for number, kind, content in parts if number == 1)
    return schemas[-1] if schemas else allows


def _or_array(parts: list[Wire], depth: int) -> Any:
    listed = [_schema(kind, content, depth) for number, kind, content in parts if number == 2]
    single = [_schema(kind, content, depth) for number, kind, content in parts if number == 1]
    return listed or (single[-1] if single else None)


def _or_strings(parts: list[Wire], depth: int) -> Any:
    listed = [_string(kind, content, depth) for number, kind, content in parts if number == 2]
    single = [_schema(kind, content, depth) for number, kind, content in parts if number == 1]
    return listed or (single[-1] if single else None)


_SCALARS: dict[str, Read] = {
    "string": _string,
    "int32": _int,
    "int64": _int,
    "bool": _bool,
    "double": _double,
    "bytes": _bytes,
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _only(1, _string),
    "IntOrString": _int_or_string,
    "RawExtension": _raw_json,
    "FieldsV1": _raw_json,
    "JSON": _raw_json,
    "any": _raw_json,
    "JSONSchemaPropsOrBool": _schema_or(_or_bool),
    "JSONSchemaPropsOrArray": _schema_or(_or_array),
    "JSONSchemaPropsOrStringArray": _schema_or(_or_strings),
}
