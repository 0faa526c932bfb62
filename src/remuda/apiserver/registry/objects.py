"""Encoding of stored objects. No other module encodes them.

Stored JSON always begins with apiVersion, kind and metadata, in this order: lists of built-in kinds rely on it to omit
the first two without decoding. Its metadata.resourceVersion is the revision of its last write.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.types import Revision
from remuda.kube import random_source

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def decode(value: bytes) -> Obj:
    obj: Obj = _decode(value)
    return obj


def encode(obj: Obj) -> bytes:
    """Encode as JSON, with apiVersion, kind and metadata first."""
    ordered = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": obj["metadata"]}
    ordered.update(obj)
    return _encode(ordered)


def encode_at(obj: Obj, revision: Revision) -> bytes:
    obj["metadata"]["resourceVersion"] = str(revision)
    return encode(obj)


def to_storage(resource: Resource, obj: Obj) -> Obj:
    """Return the object in the stored version."""
    if resource.to_storage is not None:
        return resource.to_storage(obj)
    if resource.storage_version and resource.storage_version != resource.version:
        return {**obj, "apiVersion": _join(resource.group, resource.storage_version)}
    return obj


def from_storage(resource: Resource, obj: Obj) -> Obj:
    """Return the object in the requested version."""
    if resource.from_storage is not None:
        return resource.from_storage(obj)
    obj["apiVersion"] = resource.api_version
    return obj


def is_stored_as_served(resource: Resource) -> bool:
    """Return whether stored bytes can be served unchanged."""
    return resource.from_storage is None and resource.storage_version in ("", resource.version)


def _join(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def metadata(obj: Obj) -> dict[str, Any]:
    found = obj.get("metadata")
    if not isinstance(found, dict):
        found = obj["metadata"] = {}
    return found


def new_uid() -> str:
    return random_source.uid()


def at_path(obj: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of field names, or None if a part of the path is absent."""
    for name in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(name)
    return obj


def set_path(obj: Obj, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        obj = obj.setdefault(name, {})
    obj[path[-1]] = value
