"""Compiled node of an expression: a function of the frame, and the cost of running it.

The frame is one list per evaluation: the cost so far, then `self`, `oldSelf`, then names bound inside the expression.
`Piece.cost` is known without running. A node that always runs a piece adds the piece's cost to its own. A node that
runs it only sometimes (`counted`) has the cost added to the frame when it does. So straight-line code counts nothing
as it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from remuda.apiserver.cel.types import Type
from remuda.apiserver.cel.values import CelError

Frame = list[Any]
Run = Callable[[Frame], Any]

COST, SELF, OLD, FIRST_LOCAL = 0, 1, 2, 3

# Data that does not have its declared type shows as one of Python's own errors; to a rule it is a failed evaluation.
UNTYPED = (TypeError, AttributeError, ValueError, OverflowError)
FAILURES = (CelError, *UNTYPED)


class Piece(NamedTuple):
    run: Run
    cost: int
    type: Type
    constant: bool = False  # `run` gives the same value whatever the frame
    slot: int = 0  # where the value is just a frame's entry
    # An access path: what it costs when a ternary picks it, where the path's start is free.
    path_cost: int | None = None


def constant(value: Any, given: Type) -> Piece:
    return Piece(lambda frame: value, 0, given, constant=True)


def counted(piece: Piece) -> Run:
    """Runs the piece and counts it."""
    run, cost = piece.run, piece.cost
    if not cost:
        return run

    def counting(frame: Frame) -> Any:
        frame[COST] += cost
        return run(frame)

    return counting
