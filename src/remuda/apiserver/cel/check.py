"""Type checker: checks an expression against its variables' types, and finds the overloads that each call may mean.

`check` returns all its findings, or raises one error with all complaints, in upstream's wording. It accepts unknown
types (`dyn`); they are checked when the expression runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.ast import AstNode, Bind, Call, Constant, Fold, Ident, ListOf, MapOf, Message, Select
from remuda.apiserver.cel.functions import Overload
from remuda.apiserver.cel.library import FUNCTIONS, TYPE_NAMES
from remuda.apiserver.cel.literals import literal_complaints
from remuda.apiserver.cel.source import CelSyntaxError, Complaint, render
from remuda.apiserver.cel.types import Type, Unifier
from remuda.apiserver.cel.values import TypeValue, Uint


@dataclass(slots=True)
class Checked:
    root: AstNode
    types: dict[AstNode, Type] = field(default_factory=dict)
    overloads: dict[AstNode, tuple[Overload, ...]] = field(default_factory=dict)
    constants: dict[AstNode, TypeValue] = field(default_factory=dict)  # names that resolve to types
    # Calls written on a name that is only part of the function's own name, as in `sets.contains(a, b)`.
    renamed: dict[AstNode, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # the variables that the expression uses

    @property
    def result(self) -> Type:
        return self.types[self.root]


def check(source: str, root: AstNode, variables: Mapping[str, Type]) -> Checked:
    checker = _Checker(root, variables)
    checker.visit(root)
    checked = checker.finished()
    complaints = checker.complaints or literal_complaints(checked)
    if complaints:
        raise CelSyntaxError(render(source, complaints))
    return checked


_CONSTANT_TYPES: dict[type, Type] = {
    bool: t.BOOL,
    int: t.INT,
    Uint: t.UINT,
    float: t.DOUBLE,
    str: t.STRING,
    bytes: t.BYTES,
    type(None): t.NULL,
}


def qualified_name(node: AstNode | None) -> str | None:
    """Return `a.b.c` if the node consists only of names and dots."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(parts)))


class _Checker:
    def __init__(self, root: AstNode, variables: Mapping[str, Type]) -> None:
        self.out = Checked(root)
        self.scopes: list[dict[str, Type]] = [dict(variables)]
        self.unifier = Unifier()
        self.complaints: list[Complaint] = []

    def finished(self) -> Checked:
        types = self.out.types
        for node, given in types.items():
            types[node] = self.unifier.resolve(given, final=True)
        return self.out

    def complain(self, at: int, text: str) -> Type:
        self.complaints.append(Complaint(at, text))
        return t.ERROR

    def undeclared(self, at: int, name: str) -> Type:
        return self.complain(at, f"undeclared reference to '{name}' (in container '')")

    def visit(self, node: AstNode) -> Type:
        given = self.type_of(node)
        self.out.types[node] = given
        return given

    def type_of(self, node: AstNode) -> Type:
        match node:
            case Constant():
                return _CONSTANT_TYPES[type(node.value)]
            case Ident():
                return self.ident(node)
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
            case Message():
                return self.message(node)
        raise AssertionError(node)

    def lookup(self, node: AstNode, name: str) -> Type | None:
        if name.startswith("."):
            name = name[1:]
        else:
            for scope in reversed(self.scopes[1:]):
                if name in scope:
                    return scope[name]
        known = self.scopes[0].get(name)
        if known is not None:
            self.out.names.add(name)
            return known
        named = TYPE_NAMES.get(name)
        if named is None:
            return None
        self.out.constants[node] = TypeValue(named.name)
        return t.type_of(named)

    def ident(self, node: Ident) -> Type:
        return self.lookup(node, node.name) or self.undeclared(node.at, node.name)

    def select(self, node: Select) -> Type:
        name = qualified_name(node)
        if name is not None:
            known = self.lookup(node, name)
            if known is not None:
                return known
        result = self.field_of(node)
        if node.test:
            return t.BOOL
        return self.unifier.resolve(result)

    def field_of(self, node: Select) -> Type:
        given = self.unifier.resolve(self.visit(node.operand))
        owner, was_optional = t.unwrapped(given)
        if owner.kind == "map":
            result = owner.params[1]
        elif owner.kind == "object" and owner.declared is not None:
            known = owner.declared.field(node.field)
            result = known.declared.type if known else self.complain(node.at, f"undefined field '{node.field}'")
        elif owner.kind == "param":
            self.unifier.assignable(t.DYN, owner)
            result = t.DYN
        else:
            if not t.is_dynamic(owner):
                self.complain(node.at, f"type '{owner}' does not support field selection")
            result = t.DYN
        return t.optional_of(result) if was_optional or node.optional else result

    def call(self, node: Call) -> Type:
        if node.function in ("_&&_", "_||_"):
            return self.logical(node)
        args = tuple(self.visit(arg) for arg in node.args)
        if node.target is not None:
            prefix = qualified_name(node.target)
            whole = f"{prefix}.{node.function}".removeprefix(".")
            if prefix is not None and whole in FUNCTIONS and not self.is_local(prefix):
                self.out.renamed[node] = whole
                return self.resolve_overload(node, whole, args, member=False)
            args = (self.visit(node.target), *args)
        name = node.function.removeprefix(".")
        if name not in FUNCTIONS:
            return self.undeclared(node.at, node.function)
        return self.resolve_overload(node, name, args, member=node.target is not None)

    def is_local(self, prefix: str) -> bool:
        return any(prefix.split(".")[0] in scope for scope in self.scopes[1:])

    def logical(self, node: Call) -> Type:
        wrong = False
        for arg in node.args:
            given = self.visit(arg)
            if not self.unifier.assignable(given, t.BOOL):
                self.expected(arg, t.BOOL, given)
                wrong = True
        return t.ERROR if wrong else t.BOOL

    def expected(self, node: AstNode, wanted: Type, given: Type) -> Type:
        return self.complain(node.at, f"expected type '{wanted}' but found '{self.unifier.resolve(given)}'")

    def resolve_overload(self, node: AstNode, name: str, args: tuple[Type, ...], *, member: bool) -> Type:
        found: list[Overload] = []
        result: Type | None = None
        for overload in FUNCTIONS[name]:
            if overload.member != member or len(overload.args) != len(args):
                continue
            wanted = (overload.result, *overload.args)
            if overload.generic:
                wanted = self.unifier.instantiate(wanted)
            if not self.unifier.all_assignable(args, wanted[1:]):
                continue
            found.append(overload)
            given = self.unifier.resolve(wanted[0])
            if result is None:
                result = given
            elif result.kind != "dyn" and result != given:
                result = t.DYN
        if result is None:
            return self.no_overload(node, name, args, member)
        self.out.overloads[node] = tuple(found)
        return result

    def no_overload(self, node: AstNode, name: str, args: tuple[Type, ...], member: bool) -> Type:
        shown = [str(self.unifier.resolve(arg, final=True)) for arg in args]
        signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        return self.complain(node.at, f"found no matching overload for '{name}' applied to '{signature}'")

    def joined(self, before: Type | None, given: Type) -> Type:
        if before is None:
            return given
        return t.more_general(before, given) if self.unifier.assignable(before, given) else t.DYN

    def unwrap_item(self, node: AstNode, given: Type, optional: bool) -> Type:
        if not optional:
            return given
        inner, was_optional = t.unwrapped(given)
        if not was_optional and given.kind != "dyn":
            self.expected(node, t.optional_of(given), given)
        return inner

    def list_literal(self, node: ListOf) -> Type:
        item: Type | None = None
        for position, inner in enumerate(node.items):
            given = self.unwrap_item(inner, self.visit(inner), position in node.optional)
            item = self.joined(item, given)
        return t.list_of(item or self.unifier.fresh())

    def map_literal(self, node: MapOf) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.joined(key, self.visit(entry.key))
            value = self.joined(value, self.unwrap_item(entry.value, self.visit(entry.value), entry.optional))
        return t.map_of(key or self.unifier.fresh(), value or self.unifier.fresh())

    def message(self, node: Message) -> Type:
        if self.lookup(node, node.type_name) is None:
            return self.undeclared(node.at, node.type_name)
        return self.complain(node.at, f"'{node.type_name}' is not a message type")

    def bind(self, node: Bind) -> Type:
        self.scopes.append({node.name: self.visit(node.value)})
        result = self.visit(node.body)
        self.scopes.pop()
        return result

    def fold(self, node: Fold) -> Type:
        source = self.unifier.resolve(self.visit(node.source))
        self.scopes.append(self.loop_variables(node, source))
        keep = None if node.keep is None else self.visit(node.keep)
        body = self.visit(node.body)
        result = self.fold_result(node, source, keep, body)
        self.scopes.pop()
        return self.unifier.resolve(result)

    def loop_variables(self, node: Fold, source: Type) -> dict[str, Type]:
        if source.kind == "list":
            first, second = t.INT, source.params[0]
        elif source.kind == "map":
            first, second = source.params
        elif source.kind in ("dyn", "error", "param"):
            self.unifier.assignable(t.DYN, source)
            first = second = t.DYN
        else:
            first = second = self.complain(
                node.source.at,
                f"expression of type '{source}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
        if node.second:
            return {node.first: first, node.second: second}
        return {node.first: second if source.kind == "list" else first}

    def fold_result(self, node: Fold, source: Type, keep: Type | None, body: Type) -> Type:
        match node.kind:
            case "all" | "exists":
                if not self.unifier.assignable(body, t.BOOL):
                    self.expected(node.body, t.BOOL, body)
                return t.BOOL
            case "exists_one":
                self.choice(node, body, t.INT)
                return t.BOOL
            case "filter":
                item = self.out.types[node.source]
                kept = t.list_of(self.scopes[-1][node.first] if item.kind != "error" else t.ERROR)
                self.choice(node, body, kept)
                return kept
            case "map" | "transformList":
                made = t.list_of(body)
            case "transformMap":
                made = t.map_of(self.scopes[-1][node.first], body)
            case "transformMapEntry":
                made = self.inserted(node, body)
        if keep is not None:
            self.choice(node, keep, made)
        return made

    def choice(self, node: Fold, condition: Type, made: Type) -> None:
        if not self.unifier.assignable(condition, t.BOOL):
            self.no_overload(node, "_?_:_", (condition, made, made), False)

    def inserted(self, node: Fold, body: Type) -> Type:
        made = t.map_of(self.unifier.fresh(), self.unifier.fresh())
        if not self.unifier.assignable(body, made):
            return self.no_overload(node, "cel.@mapInsert", (t.map_of(t.DYN, t.DYN), body), False)
        return made
