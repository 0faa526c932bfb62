"""Compilation of variables, fields and items: the paths that an expression takes into an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.ast import Call, Select
from remuda.apiserver.cel.declared import Convert, DeclaredField
from remuda.apiserver.cel.library.collections import item, list_item, no_such_key, optional_item
from remuda.apiserver.cel.nodes import Frame, Piece, Run
from remuda.apiserver.cel.types import Type
from remuda.apiserver.cel.values import NONE, CelError, Optional

if TYPE_CHECKING:
    from remuda.apiserver.cel.program import Builder

_ABSENT = object()


def variable(slot: int, given: Type) -> Piece:
    return Piece(lambda frame: frame[slot], 1, given, slot=slot, path_cost=0)


def _step(base: Piece, run: Run, given: Type, extra: int = 0) -> Piece:
    """Return a piece that goes one step further along a path. A path that starts at a computed value costs one more."""
    start = 0 if base.path_cost is not None else 1
    path = (base.path_cost if base.path_cost is not None else base.cost + 1) + 1 + extra
    return Piece(run, base.cost + start + 1 + extra, given, path_cost=path)


def select(builder: Builder, node: Select) -> Piece:
    base = builder.piece(node.operand)
    given = builder.type_of(node)
    owner, was_optional = t.unwrapped(base.type)
    field = owner.declared.field(node.field) if owner.kind == "object" and owner.declared else None
    if node.test:
        run = _present(base.run, node.field, field, was_optional)
        path = base.path_cost
        return Piece(run, base.cost + (0 if path is not None else 1), given)
    if was_optional or node.optional:
        return _step(base, _optional_field(base.run, node.field, field), given)
    if field is not None:
        return _step(base, _field(base, field, node.field), given)
    return _step(base, _key(base.run, node.field), given)


def _field(base: Piece, field: DeclaredField, name: str) -> Run:
    """Compile the access to a declared field. A null field counts as absent, as everywhere in objects."""
    json_name, convert, run, slot = field.json_name, field.declared.convert, base.run, base.slot
    if convert is not None:
        return _converted_field(run, json_name, convert, name)

    def of_variable(frame: Frame) -> Any:
        value = frame[slot].get(json_name)
        if value is None:
            raise CelError(f"no such key: {name}")
        return value

    def of_value(frame: Frame) -> Any:
        value = run(frame).get(json_name)
        if value is None:
            raise CelError(f"no such key: {name}")
        return value

    return of_variable if slot else of_value


def _converted_field(run: Run, json_name: str, convert: Convert, name: str) -> Run:
    def converted(frame: Frame) -> Any:
        value = run(frame).get(json_name)
        if value is None:
            raise CelError(f"no such key: {name}")
        return convert(value)

    return converted


def _key(run: Run, name: str) -> Run:
    """Compile the access to a map's entry, or to a field of a value whose type is known only at run time."""

    def of_map(frame: Frame) -> Any:
        value = run(frame)
        if type(value) is dict:
            found = value.get(name, _ABSENT)
            if found is not _ABSENT:
                return found
            raise CelError(f"no such key: {name}")
        if type(value) is list:
            raise CelError("unsupported index type 'string' in list")
        return item(value, name)

    return of_map


def _present(run: Run, name: str, field: DeclaredField | None, was_optional: bool) -> Run:
    if was_optional:
        optional = _optional_field(run, name, field)
        return lambda frame: optional(frame) is not NONE
    if field is not None:
        json_name = field.json_name
        return lambda frame: run(frame).get(json_name) is not None

    def has_key(frame: Frame) -> bool:
        value = run(frame)
        if type(value) is dict:
            return name in value
        raise no_such_key(name)

    return has_key


def _optional_field(run: Run, name: str, field: DeclaredField | None) -> Run:
    json_name = field.json_name if field else name
    convert = field.declared.convert if field else None

    def found(frame: Frame) -> Any:
        owner = run(frame)
        if type(owner) is Optional:
            if owner is NONE:
                return NONE
            owner = owner.value
        if type(owner) is list:
            raise CelError("unsupported index type 'string' in list")
        if type(owner) is not dict:
            return NONE
        value = owner.get(json_name, _ABSENT)
        if value is _ABSENT or (value is None and field is not None):
            return NONE
        return Optional(value if convert is None else convert(value))

    return found


def index(builder: Builder, node: Call) -> Piece:
    base, key = (builder.piece(arg) for arg in node.args)
    run, run_key = base.run, key.run
    given = builder.type_of(node)
    # If the key is itself a path, its lookup is part of this path and its start costs nothing.
    extra = key.cost if key.path_cost is None else key.path_cost
    if node.function == "_[?_]":
        return _step(base, lambda frame: optional_item(run(frame), run_key(frame)), given, extra)
    if base.type.kind == "list" and key.type.kind == "int":
        return _step(base, lambda frame: list_item(run(frame), run_key(frame)), given, extra)
    return _step(base, lambda frame: item(run(frame), run_key(frame)), given, extra)
