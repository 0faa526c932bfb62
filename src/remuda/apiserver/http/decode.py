"""Decoder of request bodies: JSON or YAML to a mapping, with kube-apiserver's errors.

Duplicate fields matter only for field validation. Searching for them costs more than decoding, so a cheap test comes
first: a body that is exactly as long as its own compact encoding has no room for a duplicate. Most clients send compact
JSON, so usually only hand-written bodies are searched. Nesting is limited here, so that later code cannot overflow the
stack.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from remuda.apiserver import ApiServerError
from remuda.apiserver.http.negotiate import JSON, PROTOBUF, YAML, body_media_type
from remuda.apiserver.http.numbers import NumberTooLarge, decode_numbers, settled
from remuda.apiserver.http.yaml_body import YamlError, decode_yaml
from remuda.apiserver.kinds.protobuf import Malformed, Unfit
from remuda.apiserver.registry.calls import FieldValidation, PatchKind
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.schema.depth import MAX_DEPTH, TOO_DEEP, too_deep
from remuda.kube.cost import Budget
from remuda.kube.errors import StatusError, bad_request, invalid, invalid_object
from remuda.kube.malformed_json import json_complaint, open_containers
from remuda.kube.web import Request

# Decodes a whole body, with defaults for its apiVersion and kind; raises Malformed, Unfit
ProtobufDecoder = Callable[[bytes, str, str], Obj]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_SUMMARY = 30
_GO_WORDS = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


class Unreadable(ValueError):
    """Body that is not valid JSON; the text says where, in Go's wording as far as it is known."""


class OutOfRange(Unreadable):
    """JSON with a number that no type can hold."""


class ExpectedKind(msgspec.Struct, frozen=True):
    """Kind that a body must have."""

    group: str
    version: str
    kind: str
    custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def target_of(resource: Resource, subresource: str) -> ExpectedKind:
    if subresource == "scale":
        return ExpectedKind("autoscaling", "v1", "Scale")
    declared = resource.subresources.get(subresource)
    if declared is not None and declared.kind:
        version = declared.version or resource.version
        return ExpectedKind(declared.group if declared.version else resource.group, version, declared.kind)
    return ExpectedKind(resource.group, resource.version, resource.kind, resource.custom)


def decode_json(body: bytes, *, custom: bool = False, budget: Budget | None = None) -> Any:
    """Decode JSON. Raise Unreadable, or the budget's 413 (a new budget if none is given)."""
    budget = budget or Budget()
    # The text is measured first, because decoding a body of a million values would take a second.
    is_large = budget.charge_text(body)
    try:
        value = decode_numbers(body) if custom else _decode(body)
    except NumberTooLarge as number:
        raise OutOfRange(f"json: cannot unmarshal number {number} into Go value of type float64") from None
    except msgspec.DecodeError as error:
        raise Unreadable(json_complaint(body, str(error))) from None
    except UnicodeDecodeError:
        raise Unreadable("invalid UTF-8 in a string") from None
    except (RecursionError, ValueError):
        raise Unreadable(_nests_too_deeply(body)) from None
    if is_large:
        budget.charge_object(value)
    # A body with fewer brackets than the limit cannot be too deep, so most bodies are not walked.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and too_deep(value):
        raise Unreadable(_nests_too_deeply(body))
    return value


def _nests_too_deeply(body: bytes) -> str:
    opened = open_containers(body, MAX_DEPTH)
    return f"invalid character '{opened[-1]}' {TOO_DEEP}" if opened else TOO_DEEP


class ObjectReader:
    """Reader of the bodies of creates and updates. `protobuf` decodes protobuf bodies of built-in kinds."""

    def __init__(self, protobuf: ProtobufDecoder | None = None) -> None:
        self.protobuf = protobuf
        self._accepted = (JSON, YAML) if protobuf is None else (JSON, YAML, PROTOBUF)

    def media_type(self, request: Request, resource: Resource) -> str:
        """Return the media type. Raise 415 before the body is read."""
        return body_media_type(request, (JSON, YAML) if resource.custom else self._accepted)

    def read(
        self,
        body: bytes,
        media: str,
        resource: Resource,
        subresource: str,
        validation: FieldValidation,
        budget: Budget | None = None,
    ) -> tuple[Obj, list[str]]:
        """Return the object, with its apiVersion and kind, and warnings about duplicate fields. Charge the budget."""
        target = target_of(resource, subresource)
        if media == PROTOBUF and self.protobuf is not None:
            decoded = _read_protobuf(self.protobuf, body, target)
            (budget or Budget()).charge_object(decoded)
            _settle_kind(decoded, target, body)
            return decoded, []
        value, repeated = self._parse(body, media, target, validation, budget)
        if value is None:
            value = {}  # Go's decoder reads null as an object without fields
        if not isinstance(value, dict):
            raise _unrecognized(target, f"couldn't get version/kind; json parse error: {_no_object(value)}", body)
        _settle_kind(value, target, body)
        if repeated and validation == "Strict":
            problem = "strict decoding error: " + ", ".join(repeated)
            raise _unfit(str(value["kind"]), str(value["apiVersion"]), target, problem)
        return value, repeated

    def _parse(
        self, body: bytes, media: str, target: ExpectedKind, validation: FieldValidation, budget: Budget | None
    ) -> tuple[Any, list[str]]:
        try:
            if media == YAML:
                return _parse_yaml(body, custom=target.custom, budget=budget)
            value = decode_json(body, custom=target.custom, budget=budget)
        except YamlError as error:
            raise _unrecognized(target, str(error), body) from None
        except OutOfRange as error:
            raise _unfit(target.kind, target.api_version, target, str(error)) from None
        except Unreadable as error:
            raise _unrecognized(target, f"couldn't get version/kind; json parse error: {error}", body) from None
        return value, [] if validation == "Ignore" else repeated_fields(body, value)


def _read_protobuf(decode: ProtobufDecoder, body: bytes, target: ExpectedKind) -> Obj:
    try:
        return decode(body, target.api_version, target.kind)
    except Malformed as error:
        raise _unrecognized(target, str(error), body) from None
    except Unfit as error:
        raise _unfit(error.kind, error.api_version, target, str(error)) from None


def read_patch(
    body: bytes, kind: PatchKind, validation: FieldValidation, *, custom: bool = False, budget: Budget | None = None
) -> tuple[Any, list[str]]:
    """Return the decoded patch of any type, and complaints about duplicate or unknown fields in it."""
    if kind == "apply":
        return _read_apply(body, validation, custom=custom, budget=budget)
    try:
        value = decode_json(body, custom=custom, budget=budget)
    except Unreadable as error:
        raise bad_request(str(error) if kind == "strategic" else f"error decoding patch: {error}") from None
    if validation == "Ignore":
        return value, []
    complaints = repeated_fields(body, value)
    if kind == "json":
        complaints = [f"json patch {complaint}" for complaint in [*complaints, *_unknown_members(value)]]
    return value, complaints


_OPERATION = {"op", "path", "from", "value"}


def _unknown_members(operations: Any) -> list[str]:
    return [
        f'unknown field "[{index}].{name}"'
        for index, operation in enumerate(operations if isinstance(operations, list) else ())
        for name in (operation if isinstance(operation, dict) else ())
        if name not in _OPERATION
    ]


def _read_apply(
    body: bytes, validation: FieldValidation, *, custom: bool, budget: Budget | None
) -> tuple[Obj, list[str]]:
    try:
        value, repeated = _parse_yaml(body, custom=custom, budget=budget)
    except YamlError as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if not isinstance(value, dict):
        word = _GO_WORDS.get(type(value), "null")
        problem = f"json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {problem}")
    return value, [] if validation == "Ignore" else repeated


def _parse_yaml(body: bytes, *, custom: bool, budget: Budget | None) -> tuple[Any, list[str]]:
    """Parse YAML. Most YAML bodies are also JSON, which is parsed a hundred times faster."""
    if body[:1] == b"{":
        try:
            value = decode_json(body, custom=custom, budget=budget)
            return value, repeated_fields(body, value)
        except Unreadable:
            pass
    value, repeated = decode_yaml(body)
    (budget or Budget()).charge_object(value)  # charged by value: aliases can make the object larger than its text
    try:
        return settled(value) if custom else value, repeated
    except NumberTooLarge as number:
        raise YamlError(f"json: cannot unmarshal number {number} into Go value of type float64") from None


def _settle_kind(value: Obj, target: ExpectedKind, body: bytes) -> None:
    """Check apiVersion and kind against the path; for built-in kinds, fill them in where the body omits them."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    for word, given in (("apiVersion", api_version), ("kind", kind)):
        if given is not None and not isinstance(given, str):
            go = _GO_WORDS.get(type(given), "object")
            problem = f"json: cannot unmarshal {go} into Go struct field .{word} of type string"
            raise _unrecognized(target, f"couldn't get version/kind; json parse error: {problem}", body)
    if target.custom:
        _settle_custom(value, api_version or "", kind or "", target, body)
        return
    value["apiVersion"] = api_version = api_version or target.api_version
    value["kind"] = kind = kind or target.kind
    if kind != target.kind:
        there, here = (
            f"{api_version.rpartition('/')[2]}.{kind}",
            f"{target.group.partition('.')[0] or 'core'}.{target.kind}",
        )
        raise _unfit(kind, api_version, target, f"converting ({there}) to ({here}): unknown conversion")
    if api_version != target.api_version:
        raise _wrong_version(api_version, target)


def _settle_custom(value: Obj, api_version: str, kind: str, target: ExpectedKind, body: bytes) -> None:
    if not kind:
        shown = body.decode("utf-8", "replace")
        raise _unrecognized(target, f"Object 'Kind' is missing in '{shown}'", body)
    if api_version != target.api_version:
        raise _wrong_version(api_version, target)
    if kind != target.kind:
        metadata = value.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        problem = invalid("kind", kind, f"must be {target.kind}")
        raise invalid_object(target.group, kind, name if isinstance(name, str) else "", [problem])


def _wrong_version(api_version: str, target: ExpectedKind) -> StatusError:
    return bad_request(
        f"the API version in the data ({api_version}) does not match the expected API version ({target.api_version})"
    )


def _unfit(kind: str, api_version: str, target: ExpectedKind, problem: str) -> StatusError:
    version = api_version.rpartition("/")[2]
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {target.kind}: {problem}')


def _unrecognized(target: ExpectedKind, problem: str, body: bytes) -> StatusError:
    return bad_request(
        f"the object provided is unrecognized (must be of type {target.kind}): {problem} ({_summary(body)})"
    )


def _no_object(value: Any) -> str:
    return f"json: cannot unmarshal {_GO_WORDS.get(type(value), 'value')} into Go value of type {_TYPE_META}"


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    shown = body[:_SUMMARY]
    text = shown.decode("utf-8", "replace") if body[:1] == b"{" else shown.hex()
    return text + " ..." if len(body) > _SUMMARY else text


# -- fields given twice ------------------------------------------------------------------------------------------


class _Pairs(list[tuple[str, Any]]):
    """Object of the body with all its pairs, including duplicates."""


def repeated_fields(body: bytes, value: Any) -> list[str]:
    """Return `duplicate field "spec.x"` for each field that occurs more than once."""
    if len(_encode(value)) == len(body.rstrip()):
        return []
    try:
        if not _has_repeated(body):
            return []
        paths: list[str] = []
        _find_repeated(json.loads(body, object_pairs_hook=_Pairs), "", paths)
    except (ValueError, RecursionError):
        return []  # the main decoder has accepted it
    return [f'duplicate field "{path}"' for path in dict.fromkeys(paths)]


class _Repeated(ApiServerError):
    pass


def _has_repeated(body: bytes) -> bool:
    def check(pairs: list[tuple[str, Any]]) -> None:
        if len({name for name, _ in pairs}) != len(pairs):
            raise _Repeated

    try:
        json.loads(body, object_pairs_hook=check)
    except _Repeated:
        return True
    return False


def _find_repeated(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, inner in value:
            here = f"{path}.{name}" if path else name
            if name in seen:
                found.append(here)
            seen.add(name)
            _find_repeated(inner, here, found)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _find_repeated(inner, f"{path}[{index}]", found)
