"""Type errors in built-in types, as Go's JSON decoder reports them: only the first one, and as a 400, not a 422.

All fields of a built-in kind are decoded this way. In a custom resource only metadata is (its own and that of embedded
resources); the schema validates everything else. Go's error names the innermost struct, the path of field names without
indices or map keys, and the expected Go type. `Schema.ref` provides the types.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.schema import facts
from remuda.apiserver.schema.wire import MICRO_TIME, bytes_error, micro_time_error, time_error
from remuda.kube import errors
from remuda.kube.go_text import decoder_type
from remuda.kube.schema import Schema

_GO_SCALARS = {"string": "string", "boolean": "bool", "integer": "int64", "number": "float64"}
_META = ("apiVersion", "kind", "metadata")


def decode_error(schema: Schema, value: Any, native: bool, kind: str = "") -> str:
    """Return the decoder's error message, or an empty string. `kind` names a root without a `ref`."""
    if native:
        return _native(schema, value, (), kind)
    return _custom(schema, value, "", is_root=True)


def _custom(schema: Schema, value: Any, path: str, is_root: bool = False) -> str:
    if isinstance(value, dict):
        for name, item in value.items():
            known = schema.properties.get(name)
            inner = known or schema.additional
            if inner is None or (not isinstance(item, dict | list) and name not in _META):
                continue
            said = _custom_field(schema, inner, name, item, _below(path, name, known is not None), is_root)
            if said:
                return said
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            said = _custom(schema.items, item, f"{path}[{index}]")
            if said:
                return said
    return ""


def _below(path: str, name: str, is_field: bool) -> str:
    if not is_field:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def _custom_field(schema: Schema, inner: Schema, name: str, item: Any, path: str, is_root: bool) -> str:
    if not (is_root or schema.embedded_resource) or name not in _META:
        return _custom(inner, item, path)
    if name == "metadata":
        said = _native(inner, item, (), inner.ref)
        if is_root or not said:
            return said
        return str(errors.invalid(path, item, said))
    if isinstance(item, str) or is_root:
        return ""
    return str(errors.invalid(path, item, "must be a string"))


def _native(schema: Schema, value: Any, path: tuple[str, ...], struct: str) -> str:
    if value is None or (schema.preserve_unknown and not schema.properties):
        return ""
    if schema.int_or_string:
        return _int_or_string_error(value)
    if schema.format in ("date-time", "byte") and schema.type == "string":
        return _text_error(schema, value, path, struct)
    if not _fits(schema, value):
        return _mismatch(schema, value, path, struct)
    if isinstance(value, dict):
        return _native_fields(schema, value, path, struct)
    if isinstance(value, list) and schema.items is not None:
        return _first(_native(schema.items, item, path, struct) for item in value)
    return ""


def _native_fields(schema: Schema, value: dict[str, Any], path: tuple[str, ...], struct: str) -> str:
    here = _short(schema.ref) or struct
    for name, item in value.items():
        known = schema.properties.get(name)
        if known is not None:
            said = _native(known, item, (*path, name), here)
        elif schema.additional is not None:
            said = _native(schema.additional, item, path, struct)
        else:
            continue
        if said:
            return said
    return ""


def _first(said: Any) -> str:
    return next((sentence for sentence in said if sentence), "")


def _fits(schema: Schema, value: Any) -> bool:
    kind = schema.type
    if kind == "integer":
        low, high = integer_range(schema.format)
        return type(value) is int and low <= value <= high
    if kind == "number":
        return type(value) in (int, float)
    return kind not in NATIVE_TYPES or type(value) is NATIVE_TYPES[kind]


NATIVE_TYPES: dict[str, type] = {"string": str, "boolean": bool, "object": dict, "array": list}


def integer_range(format_: str) -> tuple[int, int]:
    if format_ == "int32":
        return facts.INT32_MIN, facts.INT32_MAX
    return facts.INT64_MIN, facts.INT64_MAX


def _mismatch(schema: Schema, value: Any, path: tuple[str, ...], struct: str) -> str:
    word = decoder_type(value)
    if schema.type == "integer" and word == "number":
        word = f"number {value}"
    if not path:
        return f"json: cannot unmarshal {word} into Go value of type {go_type(schema, struct)}"
    return f"json: cannot unmarshal {word} into Go struct field {struct}.{'.'.join(path)} of type {go_type(schema)}"


def _text_error(schema: Schema, value: Any, path: tuple[str, ...], struct: str) -> str:
    if schema.format == "byte":
        return bytes_error(value) if isinstance(value, str) else _mismatch(schema, value, path, struct)
    if not isinstance(value, str):
        return f"json: cannot unmarshal {decoder_type(value)} into Go value of type string"
    return micro_time_error(value) if schema.ref == MICRO_TIME else time_error(value)


def _int_or_string_error(value: Any) -> str:
    if isinstance(value, str) or (type(value) is int and facts.INT32_MIN <= value <= facts.INT32_MAX):
        return ""
    word = f"number {value}" if type(value) in (int, float) else decoder_type(value)
    return f"json: cannot unmarshal {word} into Go value of type int32"


def go_type(schema: Schema, struct: str = "") -> str:
    """Return the Go type of a built-in node."""
    name = _short(schema.ref) or struct
    if name:
        return f"v1.{name}"
    if schema.type == "array":
        return "[]" + (go_type(schema.items) if schema.items is not None else "interface {}")
    if schema.type == "object":
        return "map[string]" + (go_type(schema.additional) if schema.additional is not None else "interface {}")
    if schema.format == "byte":
        return "[]uint8"
    if schema.format == "int32":
        return "int32"
    return _GO_SCALARS.get(schema.type, "interface {}")


def _short(ref: str) -> str:
    return ref.rpartition(".")[2]
