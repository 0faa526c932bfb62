"""The syntax tree of an expression, macros already expanded.

Nodes are frozen and compared by identity, so that what later phases learn about a node (its type, its overloads, its
size) lives in tables keyed by the node. `at` is the offset, in code points, that an error about the node points to.
Comprehensions stay one node (`Fold`) with the kind of macro that made them: checker, cost estimate and program each
know what such a loop means, and the program can run it as one Python loop.
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
    """`operand.field`, `operand.?field`, or with `test` the inside of has()."""

    operand: AstNode
    field: str
    test: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(AstNode):
    """A function, method or operator; operators are named as CEL names them (`_+_`, `!_`, `_[_]`, `_?_:_`)."""

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
    """`Type{field: value}`: parsed, never accepted, because no type of ours can be constructed."""

    type_name: str


@dataclass(frozen=True, slots=True, eq=False)
class Fold(AstNode):
    kind: FoldKind
    source: AstNode
    first: str
    second: str  # "" in the forms with one variable
    keep: AstNode | None  # only what satisfies this is transformed
    body: AstNode


@dataclass(frozen=True, slots=True, eq=False)
class Bind(AstNode):
    """A name for a value within `body`; made by sortBy, optMap and optFlatMap."""

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
