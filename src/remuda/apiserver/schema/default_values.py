"""Validation of the defaults in a schema: they may have known fields only, and must satisfy the schema."""

from __future__ import annotations

from collections.abc import Iterator

from remuda.apiserver.schema.coerce import clone
from remuda.apiserver.schema.embedded import embedded_errors
from remuda.apiserver.schema.facts import identity
from remuda.apiserver.schema.prune import prune
from remuda.apiserver.schema.validate import Validation
from remuda.kube.errors import FieldError, invalid
from remuda.kube.schema import UNSET, Schema


def default_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield the errors in the defaults of a node and all below it. As upstream, skips additionalProperties."""
    if schema.default is not UNSET:
        yield from _value_errors(schema, f"{path}.default")
    if schema.items is not None:
        yield from default_errors(schema.items, f"{path}.items")
    for name, field in schema.properties.items():
        yield from default_errors(field, f"{path}.properties[{name}]")


def _value_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    pruned = clone(schema.default)
    prune(schema, pruned)
    if identity(pruned) != identity(schema.default):
        yield invalid(path, schema.default, "must not have unknown fields")
    found = embedded_errors(schema, schema.default, path)
    yield from found or Validation(path).run(schema, schema.default)
