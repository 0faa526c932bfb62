"""Syntax tree of an expression, with macros already expanded.

Nodes are frozen and compared by identity. Later phases keep what they learn about a node (its type, overloads and size)
in tables keyed by the node. `at` is the offset, in code points, that an error about the node points to.

A comprehension stays one node (`Fold`) that records which macro produced it. The checker, the cost estimate and the
program each handle that macro, and the program can run it as one Python loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FoldKind = Literal["all", "exists", "exists_one", "map", "filter", "transformList", "transformMap", "transformMapEntry"]


@dataclass(frozen=True, slots=True, eq=False)
class AstNode:
    at: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant(AstNode):
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Ident(AstNode):
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Select(AstNode):
    """Node for `operand.field` or `operand.?field`; with `test`, the argument of has()."""

    operand: AstNode
    field: str
    test: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(AstNode):
    """Call of a function, method or operator. Operators have CEL's names (`_+_`, `!_`, `_[_]`, `_?_:_`)."""

    function: str
    target: AstNode | None
    args: tuple[AstNode, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ListOf(AstNode):
    items: tuple[AstNode, ...]
    optional: frozenset[int] = frozenset()  # positions written as ?item


@dataclass(frozen=True, slots=True, eq=False)
class MapEntry:
    key: AstNode
    value: AstNode
    optional: bool


@dataclass(frozen=True, slots=True, eq=False)
class MapOf(AstNode):
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Message(AstNode):
    """Node for `Type{field: value}`. The parser reads it, and the checker always rejects it: no type here can be
    constructed.
    """

    type_name: str


@dataclass(frozen=True, slots=True, eq=False)
class Fold(AstNode):
    kind: FoldKind
    source: AstNode
    first: str
    second: str  # "" for a macro with one variable
    keep: AstNode | None  # filter: only values that satisfy it are transformed
    body: AstNode


@dataclass(frozen=True, slots=True, eq=False)
class Bind(AstNode):
    """Binding of a name to a value within `body`, as sortBy, optMap and optFlatMap produce it."""

    name: str
    value: AstNode
    body: AstNode


def children(node: AstNode) -> tuple[AstNode, ...]:
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.args if node.target is None else (node.target, *node.args)
        case ListOf():
            return node.items
        case MapOf():
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        case Fold():
            return (node.source, node.body) if node.keep is None else (node.source, node.keep, node.body)
        case Bind():
            return (node.value, node.body)
    return ()
