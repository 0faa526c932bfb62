"""Code generation: turns a checked expression into a Python function, built once and run for every object.

Each node becomes a closure over its operands' closures. The static types select the overload at compile time where they
can. Where types are only known at run time, the closure selects the overload then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.apiserver.cel import access, calls, logic, loops
from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.ast import AstNode, Bind, Call, Constant, Fold, Ident, ListOf, MapOf, Select
from remuda.apiserver.cel.check import Checked
from remuda.apiserver.cel.cost import LIST_BASE, MAP_BASE, PER_CALL_LIMIT
from remuda.apiserver.cel.nodes import COST, FIRST_LOCAL, OLD, SELF, UNTYPED, Frame, Piece, constant
from remuda.apiserver.cel.values import NO_OVERLOAD, NONE, CelError, CostExceeded, Optional, to_key


class Program:
    """Executable expression over `self` and `oldSelf`."""

    __slots__ = ("_locals", "_run", "_static")

    def __init__(self, piece: Piece, local_count: int) -> None:
        self._run = piece.run
        self._static = piece.cost
        self._locals = [None] * local_count

    def run(self, value: Any, old: Any, spent: list[int]) -> Any:
        """Evaluate the expression. Raise CelError if the evaluation fails and CostExceeded if it exceeds the limit.

        Sets the single entry of `spent` to the cost of the evaluation, even if it failed.
        """
        frame: Frame = [self._static, value, old, *self._locals]
        try:
            result = self._run(frame)
        except UNTYPED:
            raise CelError(NO_OVERLOAD) from None
        finally:
            spent[0] = frame[COST]
        if frame[COST] > PER_CALL_LIMIT:
            raise CostExceeded
        return result


def build(checked: Checked) -> Program:
    """Build the program of an expression. Raise CelError if a constant part of the expression always fails."""
    builder = Builder(checked)
    return Program(builder.piece(checked.root), builder.locals)


class Builder:
    """Builds pieces from nodes, and maps each variable in scope to its slot in the frame."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.slots: dict[str, int] = {"self": SELF, "oldSelf": OLD}
        self.locals = 0

    def type_of(self, node: AstNode) -> t.Type:
        return self.checked.types[node]

    def bind(self, *names: str) -> tuple[list[int], Mapping[str, int]]:
        """Allocate slots for variables, and return their previous meanings, to be passed to `unbind`."""
        before = self.slots
        slots = [FIRST_LOCAL + self.locals + at for at in range(len(names))]
        self.locals += len(names)
        self.slots = {**before, **dict(zip(names, slots, strict=True))}
        return slots, before

    def unbind(self, before: Mapping[str, int]) -> None:
        self.slots = dict(before)

    def piece(self, node: AstNode) -> Piece:
        if node in self.checked.constants:
            return constant(self.checked.constants[node], self.type_of(node))
        match node:
            case Constant():
                return constant(node.value, self.type_of(node))
            case Ident():
                return access.variable(self.slots[node.name.removeprefix(".")], self.type_of(node))
            case Select():
                return access.select(self, node)
            case Call():
                return self.call(node)
            case ListOf():
                return self.list_literal(node)
            case MapOf():
                return self.map_literal(node)
            case Fold():
                return loops.fold(self, node)
            case Bind():
                return self.binding(node)
        raise AssertionError(node)

    def call(self, node: Call) -> Piece:
        match node.function:
            case "_&&_":
                return logic.conjunction([self.piece(arg) for arg in node.args])
            case "_||_":
                return logic.disjunction([self.piece(arg) for arg in node.args])
            case "_?_:_":
                condition, chosen, other = (self.piece(arg) for arg in node.args)
                return logic.choice(condition, chosen, other, self.type_of(node))
            case "_[_]" | "_[?_]":
                return access.index(self, node)
            case "or" | "orValue" if node.target is not None:
                return logic.fallback(self.piece(node.target), self.piece(node.args[0]), node.function)
        return calls.call(self, node)

    def binding(self, node: Bind) -> Piece:
        value = self.piece(node.value)
        (slot,), before = self.bind(node.name)
        body = self.piece(node.body)
        self.unbind(before)
        run_value, run_body = value.run, body.run

        def bound(frame: Frame) -> Any:
            frame[slot] = run_value(frame)
            return run_body(frame)

        return Piece(bound, value.cost + body.cost, body.type)

    def list_literal(self, node: ListOf) -> Piece:
        items = [self.piece(item) for item in node.items]
        runs = [item.run for item in items]
        given = self.type_of(node)
        if all(item.constant for item in items) and not node.optional:
            return constant([run([]) for run in runs], given)
        optional = node.optional

        def make(frame: Frame) -> Any:
            return [run(frame) for run in runs]

        def make_some(frame: Frame) -> Any:
            made: list[Any] = []
            for at, run in enumerate(runs):
                value = run(frame)
                if at not in optional:
                    made.append(value)
                elif value is not NONE:
                    made.append(_held(value))
            return made

        return Piece(make_some if optional else make, LIST_BASE + sum(item.cost for item in items), given)

    def map_literal(self, node: MapOf) -> Piece:
        entries = [(self.piece(entry.key), self.piece(entry.value), entry.optional) for entry in node.entries]
        runs = [(key.run, value.run, optional) for key, value, optional in entries]

        def make(frame: Frame) -> Any:
            made: dict[Any, Any] = {}
            for run_key, run_value, optional in runs:
                key, value = to_key(run_key(frame)), run_value(frame)
                if not optional:
                    made[key] = value
                elif value is not NONE:
                    made[key] = _held(value)
            return made

        given = self.type_of(node)
        if all(key.constant and value.constant and not optional for key, value, optional in entries):
            return constant(make([]), given)
        return Piece(make, MAP_BASE + sum(key.cost + value.cost for key, value, _ in entries), given)


def _held(value: Any) -> Any:
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional entry from non-optional value {value}")
    return value.value
