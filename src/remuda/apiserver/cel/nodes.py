"""Compiled node of an expression: a function of the frame, and the cost of running it.

The frame is one list per evaluation: the cost so far, then `self`, `oldSelf`, then the variables of the expression.
`Piece.cost` is known at compile time. If a node always runs a piece, it adds the piece's cost to its own. If it runs
the piece only sometimes, it wraps the piece in `counted`, which adds the cost to the frame at run time. So
straight-line code has no counting overhead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from remuda.apiserver.cel.types import Type
from remuda.apiserver.cel.values import CelError

Frame = list[Any]
Run = Callable[[Frame], Any]

COST, SELF, OLD, FIRST_LOCAL = 0, 1, 2, 3

# Data of another type than declared raises one of these Python errors. The rule then counts as failed.
UNTYPED = (TypeError, AttributeError, ValueError, OverflowError)
FAILURES = (CelError, *UNTYPED)


class Piece(NamedTuple):
    run: Run
    cost: int
    type: Type
    constant: bool = False  # `run` returns the same value for every frame
    slot: int = 0  # index of the frame entry that holds the value, if there is one
    # An access path: what it costs when a ternary picks it, where the path's start is free.
    path_cost: int | None = None


def constant(value: Any, given: Type) -> Piece:
    return Piece(lambda frame: value, 0, given, constant=True)


def counted(piece: Piece) -> Run:
    """Return a piece that adds its cost to the frame when it runs."""
    run, cost = piece.run, piece.cost
    if not cost:
        return run

    def counting(frame: Frame) -> Any:
        frame[COST] += cost
        return run(frame)

    return counting
