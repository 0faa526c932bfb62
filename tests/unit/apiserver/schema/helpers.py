"""Small custom resources to try schemas on."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.schema.parse import parse_crd_schema
from remuda.apiserver.schema.walk import Structural

PATH = "spec.validation.openAPIV3Schema"


def structural(spec: dict[str, Any], **root: Any) -> Structural:
    """A CRD whose objects have this schema as their spec."""
    schema, errors = parse_crd_schema({"type": "object", "properties": {"spec": spec, **root}}, path=PATH)
    assert errors == []
    return Structural(schema)


def an_object(spec: Any, **more: Any) -> dict[str, Any]:
    metadata = {"name": "x", "resourceVersion": "1", **more.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": spec, **more}


def complaints(spec: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    """What is said of an object with this spec, as the client sees it."""
    outcome = structural(spec).admit(an_object(value), an_object(old) if old is not None else None)
    assert outcome.malformed == ""
    return [str(error) for error in outcome.errors]


def schema_complaints(spec: Any, **root: Any) -> list[str]:
    """What is said of a CRD with this spec, without the path that all complaints share."""
    _, errors = parse_crd_schema({"type": "object", "properties": {"spec": spec}, **root}, path=PATH)
    return [str(error).replace(f"{PATH}.properties[spec]", "").replace(PATH, "") for error in errors]
