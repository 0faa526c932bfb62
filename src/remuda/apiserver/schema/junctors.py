"""anyOf, oneOf, allOf and not: raw clauses turned into schemas that only check values, once per node."""

from __future__ import annotations

from typing import NamedTuple

from remuda.apiserver.schema.read import read_schema
from remuda.kube.schema import Schema


class Alternatives(NamedTuple):
    any_of: tuple[Schema, ...]
    one_of: tuple[Schema, ...]
    all_of: tuple[Schema, ...]
    not_: Schema | None


def alternatives(schema: Schema) -> Alternatives:
    """Kept on the node itself, so that it lives exactly as long."""
    known: Alternatives | None = schema.__dict__.get("_alternatives")
    if known is None:
        known = Alternatives(
            tuple(read_schema(clause) for clause in schema.any_of),
            tuple(read_schema(clause) for clause in schema.one_of),
            tuple(read_schema(clause) for clause in schema.all_of),
            read_schema(schema.not_) if schema.not_ is not None else None,
        )
        schema.__dict__["_alternatives"] = known
    return known
