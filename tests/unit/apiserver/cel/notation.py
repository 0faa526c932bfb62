"""CEL values in writing, for tables of expectations."""

from __future__ import annotations

import json
import math
from typing import Any

from remuda.apiserver.cel.check import Checked, check
from remuda.apiserver.cel.library.conversions import double_text
from remuda.apiserver.cel.program import Program, build
from remuda.apiserver.cel.syntax import parse
from remuda.apiserver.cel.times import timestamp_text
from remuda.apiserver.cel.values import NONE, Duration, Optional, Timestamp, TypeValue, Uint


def checked(source: str) -> Checked:
    return check(source, parse(source), {})


def program(source: str) -> Program:
    return build(checked(source))


def evaluate(source: str) -> Any:
    return program(source).run(None, None, [0])


def shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"map[{len(value)}]"
    if isinstance(value, float):
        return ("NaN" if math.isnan(value) else double_text(value)) + "d"
    if isinstance(value, Optional):
        return "optional.none" if value is NONE else f"optional({shown(value.value)})"
    return str(_WRITERS.get(type(value), str)(value))


_WRITERS: dict[type, Any] = {
    type(None): lambda value: "null",
    bool: lambda value: str(value).lower(),
    str: lambda value: json.dumps(value, ensure_ascii=False),
    bytes: lambda value: "b" + value.hex(),
    Uint: lambda value: f"{int(value)}u",
    Timestamp: lambda value: f"timestamp({timestamp_text(value)})",
    Duration: lambda value: f"duration({value.ns})",
    TypeValue: lambda value: f"type({value.name})",
}
