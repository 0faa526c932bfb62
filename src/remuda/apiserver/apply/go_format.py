"""Values as Go's formatting verbs print them, for the few messages in which clients see that.

Server-side apply quotes managers and keys with `%q` and shows a misplaced value with `%v` or `%#v` of the wrapper
that upstream keeps it in. Limits: only JSON values, and no more of Go's formatting than these messages need.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.kube.go_quote import quoted


def _bare(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_bare(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_bare(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}{" + ", ".join(f"{quoted(k)}:{_literal(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(_literal(item) for item in value) + "}"
    if value is None:
        return "interface {}(nil)"
    return quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def boxed(value: Any) -> str:
    """`%v` of the wrapper: `&{x}`."""
    return f"&{{{_bare(value)}}}"


def boxed_literal(value: Any) -> str:
    """`%#v` of the wrapper."""
    return f"&value.valueUnstructured{{Value:{_literal(value)}}}"


def type_name(value: Any) -> str:
    """`%T` of a decoded JSON value."""
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    names = {str: "string", bool: "bool", int: "int64", float: "float64"}
    return names.get(type(value), "<nil>")
