"""Checks of literals before anything runs.

They cover durations, timestamps, regular expressions, lists and maps of mixed types, and format strings that do not fit
their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from remuda.apiserver.cel.ast import AstNode, Call, Constant, ListOf, MapOf, children
from remuda.apiserver.cel.library import format, regex
from remuda.apiserver.cel.source import Complaint
from remuda.apiserver.cel.times import parse_duration, parse_timestamp
from remuda.apiserver.cel.types import Type, equivalent, unwrapped
from remuda.apiserver.cel.values import CelError

if TYPE_CHECKING:
    from remuda.apiserver.cel.check import Checked


def literal_complaints(checked: Checked) -> list[Complaint]:
    found: list[Complaint] = []
    for node, in_format in _walk(checked.root):
        if isinstance(node, Call):
            found += _bad_argument(node)
            if node.function == "format":
                found += _bad_format(node, checked)
        elif isinstance(node, ListOf) and not in_format:
            found += _mixed_list(node, checked)
        elif isinstance(node, MapOf) and not in_format:
            found += _mixed_map(node, checked)
    return found


def _walk(root: AstNode) -> Iterator[tuple[AstNode, bool]]:
    """Yield every node once, and whether it is inside the arguments of format(), where types may be mixed."""
    seen: set[AstNode] = set()
    pending = [(root, False)]
    while pending:
        node, in_format = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node, in_format
        inside = in_format or (isinstance(node, Call) and node.function == "format")
        pending += ((child, inside) for child in children(node))


def _valid_pattern(pattern: str) -> bool:
    try:
        regex.compiled(pattern)
    except CelError:
        return False
    return True


_CHECKS: dict[str, Callable[[str], object]] = {
    "duration": parse_duration,
    "timestamp": parse_timestamp,
    "matches": _valid_pattern,
}


def _bad_argument(node: Call) -> Iterator[Complaint]:
    check = _CHECKS.get(node.function)
    if check is None or not node.args:
        return
    # The pattern of matches(text, pattern) is its second argument, but upstream checks the first one here.
    arg = node.args[0]
    if isinstance(arg, Constant) and isinstance(arg.value, str) and not check(arg.value):
        yield Complaint(arg.at, f"invalid {node.function} argument")


def _mismatch(node: AstNode, wanted: Type, given: Type) -> Complaint:
    return Complaint(node.at, f"expected type '{wanted}' but found '{given}'")


def _mixed_list(node: ListOf, checked: Checked) -> Iterator[Complaint]:
    wanted: Type | None = None
    for position, item in enumerate(node.items):
        given = checked.types[item]
        if position in node.optional:
            given = unwrapped(given)[0]
        if wanted is None:
            wanted = given
        elif not equivalent(wanted, given):
            yield _mismatch(item, wanted, given)
            return


def _mixed_map(node: MapOf, checked: Checked) -> Iterator[Complaint]:
    keys: Type | None = None
    values: Type | None = None
    for entry in node.entries:
        key, value = checked.types[entry.key], checked.types[entry.value]
        if entry.optional:
            value = unwrapped(value)[0]
        if keys is None or values is None:
            keys, values = key, value
            continue
        if not equivalent(keys, key):
            yield _mismatch(entry.key, keys, key)
        if not equivalent(values, value):
            yield _mismatch(entry.value, values, value)


def _bad_format(node: Call, checked: Checked) -> Iterator[Complaint]:
    target, args = node.target, node.args[0] if len(node.args) == 1 else None
    if not (isinstance(target, Constant) and isinstance(target.value, str) and isinstance(args, ListOf)):
        return
    used = 0
    for _, clause, precision in format.clauses(target.value):
        if clause in ("%", "end"):
            continue
        try:
            if used >= len(args.items) and clause:
                raise format.FormatError(f"index {used} out of range")
            format.check_clause(clause, precision)
        except format.FormatError as wrong:
            yield Complaint(node.at, str(wrong))
            return
        bad = _unformattable(clause, args.items[used], checked)
        if bad is not None:
            yield Complaint(bad.at, format.refusal(clause, checked.types[bad].name))
            return
        used += 1
    if len(args.items) > used:
        yield Complaint(
            node.at, f"too many arguments supplied to string.format (expected {used}, got {len(args.items)})"
        )


def _unformattable(clause: str, arg: AstNode, checked: Checked) -> AstNode | None:
    given = checked.types[arg]
    if given.kind != "dyn" and given.kind not in format.ACCEPTED[clause][0]:
        return arg
    if clause == "s" and isinstance(arg, ListOf | MapOf):
        inner = (_unformattable(clause, child, checked) for child in children(arg))
        return next((bad for bad in inner if bad is not None), None)
    return None
