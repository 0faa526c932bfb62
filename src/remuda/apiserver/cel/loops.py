"""Loops: all, exists, exists_one, map, filter and the two-variable comprehensions, each as one Python loop.

Every iteration adds to the cost and checks the limit, so that no data makes a loop run long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from remuda.apiserver.cel.ast import Fold
from remuda.apiserver.cel.cost import LIST_BASE, PER_CALL_LIMIT
from remuda.apiserver.cel.library.collections import items_of, pairs_of
from remuda.apiserver.cel.nodes import COST, FAILURES, Frame, Piece, Run, counted
from remuda.apiserver.cel.values import NO_OVERLOAD, CelError, CostExceeded, find, from_key, to_key

if TYPE_CHECKING:
    from remuda.apiserver.cel.program import Builder

# Cost of each iteration besides its body, in CEL's own expansion of these macros.
_ALL_TEST, _EXISTS_TEST = 2, 3
_COUNT, _APPEND, _INSERT_VALUE, _INSERT_ENTRY = 2, LIST_BASE + 2, 3, 2

Rounds = Callable[[Frame], Iterable[Any]]


def fold(builder: Builder, node: Fold) -> Piece:
    source = builder.piece(node.source)
    names = (node.first, node.second) if node.second else (node.first,)
    slots, before = builder.bind(*names)
    keep = builder.piece(node.keep) if node.keep is not None else None
    body = builder.piece(node.body)
    builder.unbind(before)
    rounds = _pairs(source.run, slots) if node.second else _items(source.run, slots[0])
    if node.kind in _SHORT_FORMS and not node.second and body.type.kind == "bool":
        run, own = _SHORT_FORMS[node.kind](source.run, body, slots[0])
    else:
        run, own = _RUNS[node.kind](rounds, keep, body, slots[0])
    return Piece(run, source.cost + own, builder.type_of(node))


def _items(run: Run, slot: int) -> Rounds:
    def rounds(frame: Frame) -> Iterable[Any]:
        source = run(frame)
        for item in source if type(source) is list else items_of(source):
            if frame[COST] > PER_CALL_LIMIT:
                raise CostExceeded
            frame[slot] = item
            yield item

    return rounds


def _pairs(run: Run, slots: list[int]) -> Rounds:
    first, second = slots

    def rounds(frame: Frame) -> Iterable[Any]:
        for key, value in pairs_of(run(frame)):
            if frame[COST] > PER_CALL_LIMIT:
                raise CostExceeded
            frame[first], frame[second] = key, value
            yield value

    return rounds


# Each builder below returns the loop, and its cost without the source and the iterations.
Loop = tuple[Run, int]


def _quantifier(decides: bool, test: int) -> Callable[[Rounds, Piece | None, Piece, int], Loop]:
    def build(rounds: Rounds, keep: Piece | None, body: Piece, slot: int) -> Loop:
        run_body, per_round = body.run, body.cost + test + 1
        typed = body.type.kind == "bool"

        def loop(frame: Frame) -> Any:
            failure: Exception | None = None
            decided = False
            for _ in rounds(frame):
                if decided:  # the test before the next iteration is counted, although that iteration does not run
                    frame[COST] += test
                    return decides
                frame[COST] += per_round
                try:
                    value = run_body(frame)
                except FAILURES as failed:
                    failure = failure or failed
                    continue
                if value is decides:
                    decided = True
                elif not typed and type(value) is not bool:
                    failure = failure or CelError(NO_OVERLOAD)
            if failure is not None and not decided:
                raise failure
            return decides if decided else not decides

        return loop, 1

    return build


def _short_quantifier(decides: bool, test: int) -> Callable[[Run, Piece, int], Loop]:
    """Return a faster loop for one variable and a body known to be bool, which most rules have."""

    def build(source: Run, body: Piece, slot: int) -> Loop:
        run_body, per_round = body.run, body.cost + test + 1

        def loop(frame: Frame) -> Any:
            failure: Exception | None = None
            items = source(frame)
            if type(items) is not list:
                items = items_of(items)
            left = len(items)
            for frame[slot] in items:
                left -= 1
                frame[COST] += per_round
                if frame[COST] > PER_CALL_LIMIT:
                    raise CostExceeded
                try:
                    if run_body(frame) is decides:
                        if left:
                            frame[COST] += test
                        return decides
                except FAILURES as failed:
                    failure = failure or failed
            if failure is not None:
                raise failure
            return not decides

        return loop, 1

    return build


def _test(piece: Piece) -> Run:
    run = piece.run

    def tested(frame: Frame) -> bool:
        value = run(frame)
        if type(value) is not bool:
            raise CelError(NO_OVERLOAD)
        return value

    return tested


def _exists_one(rounds: Rounds, keep: Piece | None, body: Piece, slot: int) -> Loop:
    test, cost = _test(body), body.cost

    def loop(frame: Frame) -> bool:
        found = 0
        for _ in rounds(frame):
            frame[COST] += cost
            if test(frame):
                frame[COST] += _COUNT
                found += 1
        return found == 1

    return loop, 2


def _filter(rounds: Rounds, keep: Piece | None, body: Piece, slot: int) -> Loop:
    test, cost = _test(body), body.cost

    def loop(frame: Frame) -> list[Any]:
        kept: list[Any] = []
        for item in rounds(frame):
            frame[COST] += cost
            if test(frame):
                frame[COST] += _APPEND + 1
                kept.append(item)
        return kept

    return loop, 1


def _kept(keep: Piece | None) -> Run:
    return (lambda frame: True) if keep is None else counted(keep._replace(run=_test(keep)))


def _map(rounds: Rounds, keep: Piece | None, body: Piece, slot: int) -> Loop:
    wanted, run_body, per_item = _kept(keep), body.run, body.cost + _APPEND

    def loop(frame: Frame) -> list[Any]:
        made: list[Any] = []
        for _ in rounds(frame):
            if wanted(frame):
                frame[COST] += per_item
                made.append(run_body(frame))
        return made

    return loop, 1


def _transform_map(rounds: Rounds, keep: Piece | None, body: Piece, slot: int) -> Loop:
    wanted, run_body, per_item = _kept(keep), body.run, body.cost + _INSERT_VALUE

    def loop(frame: Frame) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for _ in rounds(frame):
            if wanted(frame):
                frame[COST] += per_item
                _insert(made, frame[slot], run_body(frame))
        return made

    return loop, 1


def _transform_entry(rounds: Rounds, keep: Piece | None, body: Piece, slot: int) -> Loop:
    wanted, run_body, per_item = _kept(keep), body.run, body.cost + _INSERT_ENTRY

    def loop(frame: Frame) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for _ in rounds(frame):
            if wanted(frame):
                frame[COST] += per_item
                entries = run_body(frame)
                if type(entries) is not dict:
                    raise CelError(NO_OVERLOAD)
                for key, value in entries.items():
                    _insert(made, from_key(key), value)
        return made

    return loop, 1


_NEW = object()


def _insert(made: dict[Any, Any], key: Any, value: Any) -> None:
    if find(made, key, _NEW) is not _NEW:
        raise CelError(f"insert failed: key {key} already exists")
    made[to_key(key)] = value


_RUNS: dict[str, Callable[[Rounds, Piece | None, Piece, int], Loop]] = {
    "all": _quantifier(False, _ALL_TEST),
    "exists": _quantifier(True, _EXISTS_TEST),
    "exists_one": _exists_one,
    "map": _map,
    "filter": _filter,
    "transformList": _map,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entry,
}
_SHORT_FORMS = {"all": _short_quantifier(False, _ALL_TEST), "exists": _short_quantifier(True, _EXISTS_TEST)}
