"""Go's gob format, as far as the plugin protocol of docker-machine drivers needs it. Pure.

Reading is generic: a stream defines its own types, and every value becomes what Python has for it (structs are dicts by
field name, interfaces are `InterfaceValue`). Writing is limited to what is ever sent: a request of Go's net/rpc and an
empty argument. A stream comes from a program of somebody else: whatever it says, nothing here loops for ever, recurses
without end or allocates more than the message is long; what is not gob is a `GobError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from remuda.providers import ProviderError

MAX_MESSAGE = 4 * 1024 * 1024
_MAX_DEPTH = 64
_MAX_TYPES = 4096
_MAX_PIECES = 64  # of one value
_LONGEST_INTEGER = 8

_BOOL, _INT, _UINT, _FLOAT, _BYTES, _STRING, _COMPLEX, _INTERFACE = range(1, 9)
_WIRE_TYPE, _ARRAY_TYPE, _COMMON_TYPE, _SLICE_TYPE, _STRUCT_TYPE, _FIELD_TYPE, _FIELD_TYPES, _MAP_TYPE = range(16, 24)
_FIRST_OWN_TYPE = 64


class GobError(ProviderError):
    """The data is not gob, or exceeds a limit."""


class InterfaceValue(NamedTuple):
    """Content of an interface: the registered name of its type, and its value."""

    type: str
    value: Any


class _Struct(NamedTuple):
    name: str
    fields: tuple[tuple[str, int], ...]


class _Slice(NamedTuple):
    element: int


class _Array(NamedTuple):
    element: int
    length: int


class _Map(NamedTuple):
    key: int
    element: int


class _Opaque(NamedTuple):
    """Type that encodes itself: its bytes are kept unchanged."""


_Type = _Struct | _Slice | _Array | _Map | _Opaque

# What every stream knows before it begins: the types that describe types.
_BOOTSTRAP: dict[int, _Type] = {
    _WIRE_TYPE: _Struct(
        "wireType",
        (
            ("ArrayT", _ARRAY_TYPE),
            ("SliceT", _SLICE_TYPE),
            ("StructT", _STRUCT_TYPE),
            ("MapT", _MAP_TYPE),
            ("GobEncoderT", _SLICE_TYPE),  # only their first field, CommonType, is there
            ("BinaryMarshalerT", _SLICE_TYPE),
            ("TextMarshalerT", _SLICE_TYPE),
        ),
    ),
    _ARRAY_TYPE: _Struct("arrayType", (("CommonType", _COMMON_TYPE), ("Elem", _INT), ("Len", _INT))),
    _COMMON_TYPE: _Struct("CommonType", (("Name", _STRING), ("Id", _INT))),
    _SLICE_TYPE: _Struct("sliceType", (("CommonType", _COMMON_TYPE), ("Elem", _INT))),
    _STRUCT_TYPE: _Struct("structType", (("CommonType", _COMMON_TYPE), ("Field", _FIELD_TYPES))),
    _FIELD_TYPE: _Struct("fieldType", (("Name", _STRING), ("Id", _INT))),
    _FIELD_TYPES: _Slice(_FIELD_TYPE),
    _MAP_TYPE: _Struct("mapType", (("CommonType", _COMMON_TYPE), ("Key", _INT), ("Elem", _INT))),
}


class Decoder:
    """Decoder of one stream: takes bytes as they arrive, and returns complete values.

    If a value needs an unknown type, the stream interrupts it for the definition and continues it in the next message;
    the value is then read again from its beginning.
    """

    def __init__(self) -> None:
        self._types = dict(_BOOTSTRAP)
        self._pending = bytearray()
        self._begun: list[bytes] = []  # messages of a value that is not complete

    def feed(self, data: bytes) -> Iterator[Any]:
        """Add data and return the values that are complete now. Raises GobError."""
        self._pending += data
        while (message := self._next_message()) is not None:
            yield from self._read(message)

    def _next_message(self) -> bytes | None:
        reader = _Reader(bytes(self._pending[: _LONGEST_INTEGER + 1]))
        try:
            length = reader.unsigned()
        except _TooShort:
            return None
        if length > MAX_MESSAGE:
            raise GobError(f"a message of {length} bytes is longer than anything expected")
        end = reader.at + length
        if len(self._pending) < end:
            return None
        message = bytes(self._pending[reader.at : end])
        del self._pending[:end]
        return message

    def _read(self, message: bytes) -> Iterator[Any]:
        self._begun.append(message)
        if len(self._begun) > _MAX_PIECES or sum(map(len, self._begun)) > MAX_MESSAGE:
            raise GobError("a value comes in more pieces than anything expected")
        reader, before = _Reader(*self._begun), dict(self._types)
        try:
            number = reader.signed()
            if number < 0:
                self._define(-number, self._value(_WIRE_TYPE, reader, 0))
            else:
                yield self._top(number, reader, 0)
        except _GoesOn:
            self._types = before
            return
        except _TooShort:
            raise GobError("a message ends in the middle of a value") from None
        except (UnicodeDecodeError, OverflowError) as error:
            raise GobError(f"a value cannot be read: {error}") from None
        if reader.left:
            raise GobError(f"{reader.left} bytes of a message mean nothing")
        self._begun.clear()

    def _define(self, number: int, wire: Mapping[str, Any]) -> None:
        if number < _FIRST_OWN_TYPE or number in self._types or len(self._types) >= _MAX_TYPES:
            raise GobError(f"type {number} cannot be defined")
        self._types[number] = _defined(wire)

    def _top(self, number: int, reader: _Reader, depth: int) -> Any:
        """Read a top-level value: a zero precedes one that is no struct."""
        if not isinstance(self._types.get(number), _Struct) and reader.unsigned() != 0:
            raise GobError("a value that is no struct does not begin as one")
        return self._value(number, reader, depth)

    def _value(self, number: int, reader: _Reader, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise GobError("values are nested too deeply")
        if number < len(_BASIC) and (basic := _BASIC[number]) is not None:
            return basic(reader)
        if number == _INTERFACE:
            return self._interface(reader, depth)
        found = self._types.get(number)
        match found:
            case _Struct():
                return self._struct(found, reader, depth)
            case _Slice(element):
                return self._elements(element, reader.count(), reader, depth)
            case _Array(element, length):
                if reader.count() != length:
                    raise GobError("an array does not have the length of its type")
                return self._elements(element, length, reader, depth)
            case _Map(key, element):
                return [
                    (self._value(key, reader, depth + 1), self._value(element, reader, depth + 1))
                    for _ in range(reader.count())
                ]
            case _Opaque():
                return reader.bytes()
        raise GobError(f"type {number} is not defined")

    def _struct(self, found: _Struct, reader: _Reader, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        place = -1
        while delta := reader.unsigned():
            place += delta
            if place >= len(found.fields):
                raise GobError(f"{found.name or 'a struct'} has no field {place}")
            name, number = found.fields[place]
            values[name] = self._value(number, reader, depth + 1)
        return values

    def _elements(self, element: int, count: int, reader: _Reader, depth: int) -> list[Any]:
        return [self._value(element, reader, depth + 1) for _ in range(count)]

    def _interface(self, reader: _Reader, depth: int) -> InterfaceValue | None:
        name = reader.bytes().decode()
        if not name:
            return None
        number = reader.signed()
        while number < 0:
            self._define(-number, self._value(_WIRE_TYPE, reader, depth + 1))
            reader.go_on()
            number = reader.signed()
        length = reader.unsigned()
        before = reader.at
        value = self._top(number, reader, depth + 1)
        if reader.at - before != length:
            raise GobError(f"a value of {name} is not as long as it says")
        return InterfaceValue(name, value)


def _defined(wire: Mapping[str, Any]) -> _Type:
    if len(wire) != 1:
        raise GobError("a type is defined as none, or as several")
    ((form, shape),) = wire.items()
    match form:
        case "StructT":
            name = shape.get("CommonType", {}).get("Name", "")
            return _Struct(name, tuple((field.get("Name", ""), field.get("Id", 0)) for field in shape.get("Field", ())))
        case "SliceT":
            return _Slice(shape.get("Elem", 0))
        case "ArrayT":
            return _Array(shape.get("Elem", 0), shape.get("Len", 0))
        case "MapT":
            return _Map(shape.get("Key", 0), shape.get("Elem", 0))
    return _Opaque()


class _TooShort(ProviderError):
    """The message ends before its value does."""


class _GoesOn(ProviderError):
    """Raised when the value continues in a message that has not arrived."""


class _Reader:
    """Reader of one message, and of those in which a value continues."""

    __slots__ = ("_data", "_further", "at")

    def __init__(self, data: bytes, *further: bytes) -> None:
        self._data = data
        self._further = list(further)
        self.at = 0

    def go_on(self) -> None:
        """After a definition in the middle of a value: in the next message, or here behind its length."""
        if self.left:
            self.unsigned()
        elif self._further:
            self._data += self._further.pop(0)
        else:
            raise _GoesOn

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise _TooShort
        found = self._data[self.at : self.at + count]
        self.at += count
        return found

    def unsigned(self) -> int:
        first = self.take(1)[0]
        if first < 0x80:
            return first
        length = 256 - first
        if length > _LONGEST_INTEGER:
            raise GobError("an integer of more than 64 bits")
        return int.from_bytes(self.take(length), "big")

    def signed(self) -> int:
        bits = self.unsigned()
        return ~(bits >> 1) if bits & 1 else bits >> 1

    def count(self) -> int:
        """Read a number of elements. Each takes at least one byte, so a number above the bytes left is invalid."""
        found = self.unsigned()
        if found > self.left:
            raise _TooShort
        return found

    def bytes(self) -> bytes:
        return self.take(self.unsigned())

    def floating(self) -> float:
        """The bytes of an IEEE 754 number in reverse order, as an integer: so that short ones are short."""
        value: float = struct.unpack("<d", self.unsigned().to_bytes(8, "big"))[0]
        return value


_BASIC: tuple[Any, ...] = (
    None,
    lambda reader: bool(reader.unsigned()),
    _Reader.signed,
    _Reader.unsigned,
    _Reader.floating,
    _Reader.bytes,
    lambda reader: reader.bytes().decode(),
    lambda reader: complex(reader.floating(), reader.floating()),
)


# ---- writing --------------------------------------------------------------------------------------------------------

_REQUEST, _EMPTY = 65, 66  # the numbers our own stream gives its two types


class Encoder:
    """One stream of calls without arguments, as Go's net/rpc sends them."""

    def __init__(self) -> None:
        self._sequence = 0
        self._told = False

    def call(self, method: str) -> bytes:
        """Return the bytes of one call; calls are numbered from 0."""
        types = b"" if self._told else _message(_request_type())
        request = signed(_REQUEST) + b"\x01" + _text(method)
        if self._sequence:
            request += b"\x01" + unsigned(self._sequence)
        empty_type = b"" if self._told else _message(_empty_type())
        self._told = True
        self._sequence += 1
        return types + _message(request + b"\x00") + empty_type + _message(signed(_EMPTY) + b"\x00")


def _request_type() -> bytes:
    fields = unsigned(2) + _field("ServiceMethod", _STRING) + _field("Seq", _UINT)
    shape = b"\x01" + _common("Request", _REQUEST) + b"\x01" + fields + b"\x00"
    return signed(-_REQUEST) + b"\x03" + shape + b"\x00"


def _empty_type() -> bytes:
    shape = b"\x01" + _common("", _EMPTY) + b"\x00"
    return signed(-_EMPTY) + b"\x03" + shape + b"\x00"


def _common(name: str, number: int) -> bytes:
    named = b"\x01" + _text(name) + b"\x01" if name else b"\x02"
    return named + signed(number) + b"\x00"


def _field(name: str, number: int) -> bytes:
    return b"\x01" + _text(name) + b"\x01" + signed(number) + b"\x00"


def _text(value: str) -> bytes:
    return unsigned(len(value.encode())) + value.encode()


def _message(payload: bytes) -> bytes:
    return unsigned(len(payload)) + payload


def unsigned(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - len(body)]) + body


def signed(value: int) -> bytes:
    return unsigned(~value << 1 | 1 if value < 0 else value << 1)
