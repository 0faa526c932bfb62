"""Compilation of function and operator calls: choose the implementation, now or at run time, and compute the cost of a
call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Any

from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.ast import Call
from remuda.apiserver.cel.cost import REGEX_FACTOR, of_shorter, tenth
from remuda.apiserver.cel.declared import Declared
from remuda.apiserver.cel.functions import CostOf, Overload, accepts
from remuda.apiserver.cel.library import regex
from remuda.apiserver.cel.library.collections import in_list
from remuda.apiserver.cel.list_types import added, comparator
from remuda.apiserver.cel.nodes import COST, Frame, Piece, Run, constant
from remuda.apiserver.cel.types import Type
from remuda.apiserver.cel.values import NO_OVERLOAD, CelError, Impl, equal, type_name

if TYPE_CHECKING:
    from remuda.apiserver.cel.program import Builder

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
# For these, Python's operators give the same results as CEL's, and they cannot fail.
_DIRECTLY_ORDERED = frozenset(("int", "uint", "string", "bytes", "bool"))
_DIRECTLY_EQUAL = frozenset(("int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration"))
_SIZED = frozenset(("string", "bytes"))


def call(builder: Builder, node: Call) -> Piece:
    args = [builder.piece(arg) for arg in node.args]
    if node.target is not None and node not in builder.checked.renamed:
        args.insert(0, builder.piece(node.target))
    overloads = builder.checked.overloads[node]
    given = builder.type_of(node)
    if node.function == "dyn":
        if args[0].constant:
            return args[0]._replace(type=given)
        return Piece(args[0].run, args[0].cost + 1, given)
    if overloads[0].pure and all(arg.constant for arg in args):
        return constant(_implementation(overloads, args)(*(arg.run([]) for arg in args)), given)
    if node.function in ("find", "findAll") and args[1].constant:
        regex.compiled(args[1].run([]))  # rejects an invalid pattern at compile time
    if overloads[0].id == "matches_string" and args[1].constant and args[0].type.kind == "string":
        return _matches_constant(args[0], args[1].run([]))
    if node.function in ("_==_", "_!=_"):
        return _equality(args[0], args[1], negated=node.function == "_!=_")
    if node.function == "@in" and args[1].constant and args[1].type.kind == "list":
        return _in_constant(args[0], args[1].run([]))
    if node.function in _COMPARISONS and all(arg.type.kind in _DIRECTLY_ORDERED for arg in args):
        return _comparison(_COMPARISONS[node.function], args[0], args[1])
    if overloads[0].id == "add_list" and args[0].type.declared is not None:
        return _list_addition(args[0], args[1], args[0].type.declared, given)
    return _general(overloads, args, given)


def _general(overloads: tuple[Overload, ...], args: list[Piece], given: Type) -> Piece:
    impl = _implementation(overloads, args)
    static = sum(arg.cost for arg in args)
    cost_of = overloads[0].cost if len(overloads) == 1 else None
    if cost_of is not None:
        return Piece(_counting(impl, [arg.run for arg in args], cost_of), static, given)
    return Piece(_plain(impl, [arg.run for arg in args]), static + 1, given)


def _plain(impl: Impl, runs: list[Run]) -> Run:
    if len(runs) == 1:
        (only,) = runs
        return lambda frame: impl(only(frame))
    if len(runs) == 2:
        first, second = runs
        return lambda frame: impl(first(frame), second(frame))
    return lambda frame: impl(*[run(frame) for run in runs])


def _counting(impl: Impl, runs: list[Run], cost_of: CostOf) -> Run:
    def counting(frame: Frame) -> Any:
        args = tuple([run(frame) for run in runs])
        result = None
        try:
            result = impl(*args)
        finally:
            frame[COST] += cost_of(args, result)
        return result

    return counting


def _implementation(overloads: tuple[Overload, ...], args: list[Piece]) -> Impl:
    """Return the only possible overload, or a function that selects the overload by the values at run time."""
    if len(overloads) == 1 and not any(_needs_look(arg.type) for arg in args):
        return overloads[0].impl
    named = overloads[0].function in ("size",)
    failure = f"{NO_OVERLOAD}: {overloads[0].function}" if named else NO_OVERLOAD

    def dispatching(*values: Any) -> Any:
        kinds = [type_name(value) for value in values]
        for overload in overloads:
            if all(map(accepts, overload.args, kinds)):
                return overload.impl(*values)
        raise CelError(failure)

    return dispatching


def _needs_look(given: Type) -> bool:
    return t.contains_dynamic(given) and given.kind in ("dyn", "error", "param")


def _comparison(compare: Callable[[Any, Any], bool], left: Piece, right: Piece) -> Piece:
    run_left, run_right = left.run, right.run
    static = left.cost + right.cost
    if left.type.kind in _SIZED:

        def sized(frame: Frame) -> bool:
            a, b = run_left(frame), run_right(frame)
            frame[COST] += tenth(min(len(a), len(b)))
            return compare(a, b)

        return Piece(sized, static, t.BOOL)
    return Piece(lambda frame: compare(run_left(frame), run_right(frame)), static + 1, t.BOOL)


def _equality(left: Piece, right: Piece, *, negated: bool) -> Piece:
    same = _same_test(left.type, right.type)
    run_left, run_right = left.run, right.run
    static = left.cost + right.cost
    if same is operator.eq and left.type.kind not in _SIZED:
        compare = operator.ne if negated else operator.eq
        return Piece(lambda frame: compare(run_left(frame), run_right(frame)), static + 1, t.BOOL)
    if same is operator.eq:
        compare = operator.ne if negated else operator.eq
        for side, other in ((left, right), (right, left)):
            if side.constant and len(side.run([])) <= _SHORT:
                return _equality_with_short(other, side.run([]), compare)

        def sized(frame: Frame) -> bool:
            a, b = run_left(frame), run_right(frame)
            frame[COST] += tenth(min(len(a), len(b)))
            return bool(compare(a, b))

        return Piece(sized, static, t.BOOL)

    def general(frame: Frame) -> bool:
        a, b = run_left(frame), run_right(frame)
        frame[COST] += of_shorter((a, b), None)
        return bool(same(a, b)) is not negated

    return Piece(general, static, t.BOOL)


# Comparing with a text of up to this size costs 1, whatever the other operand is.
_SHORT = 10


def _equality_with_short(value: Piece, wanted: Any, compare: Callable[[Any, Any], Any]) -> Piece:
    """Return the fast path for the most common comparison, which needs no arithmetic on sizes."""
    run = value.run
    if not wanted:
        return Piece(lambda frame: compare(run(frame), wanted), value.cost, t.BOOL)

    def short(frame: Frame) -> Any:
        given = run(frame)
        if given:
            frame[COST] += 1
        return compare(given, wanted)

    return Piece(short, value.cost, t.BOOL)


def _same_test(left: Type, right: Type) -> Callable[[Any, Any], Any]:
    if left.kind == right.kind and left.kind in _DIRECTLY_EQUAL:
        return operator.eq
    for side in (left, right):
        if side.declared is not None and side.kind in ("list", "map", "object"):
            return comparator(side.declared) or equal
    return equal


def _in_constant(value: Piece, items: list[Any]) -> Piece:
    """Compile `in` with a literal list. The list is prepared now, so a lookup costs nothing."""
    run = value.run
    if value.type.kind == "string" and all(type(item) is str for item in items):
        wanted = frozenset(items)
        return Piece(lambda frame: run(frame) in wanted, value.cost, t.BOOL)
    return Piece(lambda frame: in_list(run(frame), items), value.cost, t.BOOL)


def _matches_constant(value: Piece, pattern: str) -> Piece:
    run, search = value.run, regex.compiled(pattern).search
    pattern_cost = ceil(len(pattern) * REGEX_FACTOR)

    def matches(frame: Frame) -> bool:
        text = run(frame)
        frame[COST] += tenth(len(text) + 1) * pattern_cost
        return search(text.encode()) is not None

    return Piece(matches, value.cost, t.BOOL)


def _list_addition(left: Piece, right: Piece, declared: Declared, given: Type) -> Piece:
    run_left, run_right = left.run, right.run
    join = added(declared)
    return Piece(lambda frame: join(run_left(frame), run_right(frame)), left.cost + right.cost + 1, given)
