"""Estimate of an expression's worst-case cost, from the sizes that its schema allows.

The server rejects a CRD whose rules could cost too much. It must reject exactly the CRDs that upstream rejects, so it
looks for sizes in upstream's order, oddities included: the size computed for the node, its literal, the schema at its
path, its type, its variable.

A path is the variable's name and the steps from there. Only the steps after the first are looked up in the schema.
"""

from __future__ import annotations

from dataclasses import dataclass

from remuda.apiserver.cel.ast import AstNode, Bind, Call, Constant, Fold, Ident, ListOf, MapOf, Select
from remuda.apiserver.cel.call_sizes import BY_FUNCTION, BY_OVERLOAD
from remuda.apiserver.cel.check import Checked
from remuda.apiserver.cel.cost import LIST_BASE, MAP_BASE
from remuda.apiserver.cel.declared import Declared
from remuda.apiserver.cel.functions import Overload
from remuda.apiserver.cel.sizes import ONE, UNKNOWN, ZERO, EntrySize, Estimate, Range, exactly
from remuda.apiserver.cel.types import SCALARS, Type, is_optional

Path = tuple[str, ...]


def estimate(checked: Checked, root: Declared | None) -> Range:
    return Estimator(checked, root).cost(checked.root)


@dataclass(frozen=True, slots=True)
class _Local:
    path: Path
    size: Range | None
    entries: EntrySize | None


class Estimator:
    def __init__(self, checked: Checked, root: Declared | None) -> None:
        self.checked = checked
        self.root = root
        self.paths: dict[AstNode, Path] = {}
        self.sizes: dict[AstNode, Range] = {}
        self.entries: dict[AstNode, EntrySize] = {}
        self.locals: dict[str, list[_Local]] = {}

    def type_of(self, node: AstNode) -> Type:
        return self.checked.types[node]

    # --- sizes

    def local(self, node: AstNode) -> _Local | None:
        stack = self.locals.get(node.name) if isinstance(node, Ident) else None
        return stack[-1] if stack else None

    def path(self, node: AstNode) -> Path:
        bound = self.local(node)
        return bound.path if bound else self.paths.get(node, ())

    def declared_size(self, path: Path) -> Range | None:
        """Return the size that the schema allows at this path; None if the schema does not describe the path."""
        at = self.root
        if not path or at is None:
            return None
        for name in path[1:]:
            if name in ("@items", "@values"):
                at = at.item
            elif name == "@keys":
                at = at.key
            else:
                field = at.fields.get(name)
                at = field.declared if field else None
            if at is None:
                return None
        return Range(0, at.max_size)

    def size(self, node: AstNode) -> Range | None:
        known = self.sizes.get(node) or _literal_size(node)
        if known is not None:
            return known
        allowed = self.declared_size(self.path(node))
        if allowed is not None:
            self.sizes[node] = allowed
            return allowed
        if is_scalar(self.type_of(node)):
            return ONE
        bound = self.local(node)
        return bound.size if bound else None

    def size_or_unknown(self, node: AstNode) -> Range:
        return self.size(node) or UNKNOWN

    def entry_size(self, node: AstNode) -> EntrySize | None:
        known = self.entries.get(node)
        if known is not None:
            return known
        bound = self.local(node)
        return bound.entries if bound else None

    def item_size(self, node: AstNode) -> Range | None:
        """Return the size of the items of a list node; None if the node has no items at all."""
        if not self.type_of(node).params:
            return None
        path = self.path(node)
        return (self.declared_size((*path, "@items")) if path else None) or UNKNOWN

    # --- costs

    def cost(self, node: AstNode) -> Range:
        if node in self.checked.constants:
            self.paths[node] = (self.checked.constants[node].name,)
            return ONE
        match node:
            case Ident():
                bound = self.local(node)
                self.paths[node] = bound.path if bound else (node.name,)
                return ONE
            case Select():
                return self.select(node)
            case Call():
                return self.call(node)
            case ListOf():
                return self.list_literal(node)
            case MapOf():
                return self.map_literal(node)
            case Fold():
                return self.fold(node)
            case Bind():
                return self.bind(node)
        return ZERO

    def select(self, node: Select) -> Range:
        operand = self.cost(node.operand)
        if node.test:
            return operand
        if node.optional:
            return operand.plus(ONE)
        self.paths[node] = (*self.path(node.operand), node.field)
        steps = self.type_of(node.operand).kind in ("map", "object", "param")
        return operand.plus(ONE) if steps else operand

    def list_literal(self, node: ListOf) -> Range:
        total = exactly(LIST_BASE)
        inner = None
        for item in node.items:
            total = total.plus(self.cost(item))
            inner = _joined(inner, self.size_or_unknown(item))
        self.entries[node] = EntrySize("list", ONE, inner or ZERO)
        return total

    def map_literal(self, node: MapOf) -> Range:
        total = exactly(MAP_BASE)
        keys = values = None
        for entry in node.entries:
            total = total.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            keys = _joined(keys, self.size_or_unknown(entry.key))
            values = _joined(values, self.size_or_unknown(entry.value))
        self.entries[node] = EntrySize("map", keys or ZERO, values or ZERO)
        return total

    def bind(self, node: Bind) -> Range:
        total = exactly(LIST_BASE).plus(self.cost(node.value))
        bound = _Local(self.path(node.value), self.size(node.value), self.entry_size(node.value))
        self.locals.setdefault(node.name, []).append(bound)
        total = total.plus(self.cost(node.body))
        self.copy_sizes(node, node.body)
        self.locals[node.name].pop()
        return total

    def copy_sizes(self, node: AstNode, source: AstNode) -> None:
        size, entries = self.size(source), self.entry_size(source)
        if size is not None:
            self.sizes[node] = size
        if entries is not None:
            self.entries[node] = entries

    def call(self, node: Call) -> Range:
        if node.function in ("_&&_", "_||_"):
            terms = [self.cost(arg) for arg in node.args]
            return Range(terms[0].low, sum_of(terms).high)
        if node.function == "_?_:_":
            return self.conditional(node)
        if node.function == "dyn":
            cost = ONE.plus(self.cost(node.args[0]))
            self.copy_sizes(node, node.args[0])
            return cost
        args = [self.cost(arg) for arg in node.args]
        target = node.target if node not in self.checked.renamed else None
        if target is not None:
            args.append(self.cost(target))
        fitting = [self.one_call(node, overload, target) for overload in self.checked.overloads[node]]
        cost, size = fitting[0]
        for more in fitting[1:]:
            cost = cost.union(more.cost)
            size = more.size if size is None else size.union(more.size or size)
        size = self.indexed(node) or size or self.size(node)
        if size is not None:
            self.sizes[node] = size
        return cost.plus(sum_of(args))

    def indexed(self, node: Call) -> Range | None:
        """Return the size of an item: the known size of the container's items, or else the size that the schema
        declares at the path.
        """
        if node.function != "_[_]":
            return None
        size = None
        for overload in self.checked.overloads[node]:
            step = {"index_list": "@items", "index_map": "@values"}.get(overload.id)
            if step:
                self.paths[node] = (*self.path(node.args[0]), step)
                entries = self.entry_size(node.args[0])
                size = entries.value if entries else None
        return size

    def one_call(self, node: Call, overload: Overload, target: AstNode | None) -> Estimate:
        name = self.checked.renamed.get(node, node.function)
        estimator = BY_OVERLOAD.get(overload.id) or BY_FUNCTION.get(name)
        found = estimator(self, node, target, overload.id) if estimator else None
        return found or Estimate(ONE)

    def conditional(self, node: Call) -> Range:
        condition, chosen, other = (self.cost(arg) for arg in node.args)
        self.sizes[node] = self.size_or_unknown(node.args[1]).union(self.size_or_unknown(node.args[2]))
        entries = self.entry_size(node.args[1])
        joined = entries.union(self.entry_size(node.args[2])) if entries else None
        if joined is not None:
            self.entries[node] = joined
        return condition.plus(chosen.union(other))

    def fold(self, node: Fold) -> Range:
        source = self.cost(node.source)
        self.push_loop_variables(node)
        keep = self.cost(node.keep) if node.keep is not None else None
        body = self.cost(node.body)
        made = self.size_or_unknown(node.body)
        if node.kind == "filter":
            made = self.locals[node.first][-1].size or self.declared_size(self.locals[node.first][-1].path) or UNKNOWN
        for name in (node.first, node.second):
            if name:
                self.locals[name].pop()
        shape = _SHAPES[node.kind]
        step = shape.step(body)
        if keep is not None:
            step = keep.plus(step.union(ONE))
        rounds = self.size_or_unknown(node.source)
        if shape.start in (LIST_BASE, MAP_BASE):
            self.sizes[node] = rounds
        else:
            self.sizes[node] = ONE
        if shape.start == LIST_BASE:
            self.entries[node] = EntrySize("list", ONE, Range(0, made.high))
        fixed = exactly(shape.start + shape.result)
        return source.plus(fixed).plus(rounds.times(step.plus(exactly(shape.test))))

    def push_loop_variables(self, node: Fold) -> None:
        entries = self.entry_size(node.source)
        path = self.path(node.source)
        kind = entries.kind if entries else self.type_of(node.source).kind
        keys = _Local((*path, "@indices" if kind == "list" else "@keys"), entries.key if entries else None, None)
        values = _Local((*path, "@items" if kind == "list" else "@values"), entries.value if entries else None, None)
        if node.second:
            self.locals.setdefault(node.first, []).append(keys)
            self.locals.setdefault(node.second, []).append(values)
        else:
            self.locals.setdefault(node.first, []).append(values if kind == "list" else keys)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Cost of a comprehension without its source and body: at its start, per test, per step, and for its result."""

    start: int
    test: int
    result: int
    low: int  # per step, without the body
    high: int
    body_decides: bool = False  # the step may skip the body

    def step(self, body: Range) -> Range:
        low = self.low if self.body_decides else body.low + self.low
        return Range(low, body.high + self.high)


_APPEND = LIST_BASE + 2
_SHAPES = {
    "all": _Shape(0, 2, 1, 1, 1, body_decides=True),
    "exists": _Shape(0, 3, 1, 1, 1, body_decides=True),
    "exists_one": _Shape(0, 0, 2, 1, 2),
    "filter": _Shape(LIST_BASE, 0, 1, 1, _APPEND + 1),
    "map": _Shape(LIST_BASE, 0, 1, _APPEND, _APPEND),
    "transformList": _Shape(LIST_BASE, 0, 1, _APPEND, _APPEND),
    "transformMap": _Shape(MAP_BASE, 0, 1, 3, 3),
    "transformMapEntry": _Shape(MAP_BASE, 0, 1, 2, 2),
}


def _joined(before: Range | None, given: Range) -> Range:
    return given if before is None else before.union(given)


def _literal_size(node: AstNode) -> Range | None:
    match node:
        case Constant():
            return exactly(len(node.value) if isinstance(node.value, str | bytes) else 1)
        case ListOf():
            return exactly(len(node.items))
        case MapOf():
            return exactly(len(node.entries))
    return None


def is_scalar(given: Type) -> bool:
    return is_scalar(given.params[0]) if is_optional(given) else given.kind in SCALARS


def sum_of(costs: list[Range]) -> Range:
    total = ZERO
    for cost in costs:
        total = total.plus(cost)
    return total
