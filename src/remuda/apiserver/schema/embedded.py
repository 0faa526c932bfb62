"""Validation of x-kubernetes-embedded-resource: nested objects that must have a valid apiVersion, kind and metadata."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors, names
from remuda.kube.errors import FieldError
from remuda.kube.schema import Schema


def embedded_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """Return the errors in every embedded resource in a value, at any depth."""
    found: list[FieldError] = []
    _walk(schema, value, path, found)
    return found


def _walk(schema: Schema, value: Any, path: str, found: list[FieldError]) -> None:
    if schema.ref:
        return
    if isinstance(value, dict):
        if schema.embedded_resource:
            found.extend(resource_errors(value, path))
        for name, item in value.items():
            if not isinstance(item, dict | list):
                continue
            known = schema.properties.get(name)
            if known is not None:
                _walk(known, item, f"{path}.{name}" if path else name, found)
            elif schema.additional is not None:
                _walk(schema.additional, item, f"{path}[{name}]", found)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            _walk(schema.items, item, f"{path}[{index}]", found)


def resource_errors(value: dict[str, Any], path: str) -> list[FieldError]:
    """Return the errors in one embedded resource itself."""
    at = f"{path}." if path else ""
    found = [errors.required(f"{at}{name}") for name in ("apiVersion", "kind") if name not in value]
    if "apiVersion" in value:
        found.extend(_api_version_errors(value["apiVersion"], f"{at}apiVersion"))
    if "kind" in value:
        found.extend(_kind_errors(value["kind"], f"{at}kind"))
    meta = value.get("metadata")
    if isinstance(meta, dict):
        # A template, for example, may have no name. Any name serves to check the rest.
        named = meta if meta.get("name") else {**meta, "name": "fakename"}
        namespaced = bool(meta.get("namespace"))
        found.extend(
            names.validate_object_meta(named, namespaced, validate_name=names.path_segment, path=f"{at}metadata")
        )
    return found


def _api_version_errors(value: Any, path: str) -> list[FieldError]:
    if not isinstance(value, str):
        return [errors.invalid(path, value, "must be a string")]
    if not value:
        return [errors.invalid(path, value, "must not be empty")]
    if value.count("/") > 1:
        return [errors.invalid(path, value, f"unexpected GroupVersion string: {value}")]
    return []


def _kind_errors(value: Any, path: str) -> list[FieldError]:
    if not isinstance(value, str):
        return [errors.invalid(path, value, "must be a string")]
    if not value:
        return [errors.invalid(path, value, "must not be empty")]
    complaints = names.dns1035_label(value.lower())
    if not complaints:
        return []
    return [errors.invalid(path, value, "may have mixed case, but should otherwise match: " + ",".join(complaints))]
