"""Operators that evaluate only some of their operands: &&,

, the ternary and optional fallbacks.

&& and

are commutative: an operand that decides the result does so even if the other operand failed.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.library.optionals import either, value_or
from remuda.apiserver.cel.nodes import COST, FAILURES, Frame, Piece, counted
from remuda.apiserver.cel.types import Type
from remuda.apiserver.cel.values import NO_OVERLOAD, NONE, CelError


def conjunction(terms: list[Piece]) -> Piece:
    return _junction(terms, decides=False)


def disjunction(terms: list[Piece]) -> Piece:
    return _junction(terms, decides=True)


def _junction(terms: list[Piece], *, decides: bool) -> Piece:
    if len(terms) == 2 and all(term.type.kind == "bool" for term in terms):
        return _pair(terms[0], terms[1], decides)
    runs = [terms[0].run, *(counted(term) for term in terms[1:])]

    def junction(frame: Frame) -> Any:
        failure: Exception | None = None
        for run in runs:
            try:
                value = run(frame)
            except FAILURES as failed:
                failure = failure or failed
                continue
            if value is decides:
                return decides
            if type(value) is not bool:
                failure = failure or CelError(NO_OVERLOAD)
        if failure is not None:
            raise failure
        return not decides

    return Piece(junction, terms[0].cost, t.BOOL)


def _pair(left: Piece, right: Piece, decides: bool) -> Piece:
    run_left, run_right, cost_right = left.run, right.run, right.cost

    def pair(frame: Frame) -> Any:
        try:
            if run_left(frame) is decides:
                return decides
        except FAILURES as failure:
            frame[COST] += cost_right
            if _quietly(run_right, frame) is decides:
                return decides
            raise failure
        frame[COST] += cost_right
        return run_right(frame)

    return Piece(pair, left.cost, t.BOOL)


def _quietly(run: Any, frame: Frame) -> Any:
    try:
        return run(frame)
    except FAILURES:
        return None


def choice(condition: Piece, chosen: Piece, other: Piece, given: Type) -> Piece:
    run_condition = condition.run
    run_chosen, run_other = _branch(chosen), _branch(other)

    def chooses(frame: Frame) -> Any:
        value = run_condition(frame)
        if value is True:
            return run_chosen(frame)
        if value is False:
            return run_other(frame)
        raise CelError(NO_OVERLOAD)

    return Piece(chooses, condition.cost, given, path_cost=condition.cost)


def _branch(piece: Piece) -> Any:
    """Compile a branch. If the branch is only a path into the data, its steps have a cost but its start has none."""
    return counted(piece if piece.path_cost is None else piece._replace(cost=piece.path_cost))


def fallback(first: Piece, second: Piece, function: str) -> Piece:
    run_first, run_second = first.run, counted(second)
    join = either if function == "or" else value_or
    given = first.type if function == "or" else second.type

    def falls_back(frame: Frame) -> Any:
        value = run_first(frame)
        return join(value, run_second(frame) if value is NONE else None)

    return Piece(falls_back, first.cost, given)
