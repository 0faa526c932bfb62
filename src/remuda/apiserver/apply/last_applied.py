"""The annotation in which client-side `kubectl apply` stores the applied configuration.

It helps users who move to server-side apply, and applies only to the manager `kubectl`. Fields that the annotation
shows as applied by the client and unchanged since cause no conflict. The server keeps the annotation up to date, so
that users can move back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.apiserver.apply.check import complaints
from remuda.apiserver.apply.fieldset import LEAF, Fields, difference
from remuda.apiserver.apply.shape import ItemError, Shape
from remuda.apiserver.apply.walk import claimed, compare_maps

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER = "kubectl"
_LARGEST_ANNOTATIONS = 256 * 1024


def remembered(obj: dict[str, Any]) -> str:
    annotations = obj.get("metadata", {}).get("annotations") or {}
    value = annotations.get(ANNOTATION)
    return value if isinstance(value, str) else ""


def unchanged_since(live: dict[str, Any], api_version: str, shape: Shape) -> Fields:
    """Return the fields that client-side apply set and that still have the same values."""
    text = remembered(live)
    if not text or complaints(live, shape):
        return LEAF
    try:
        applied = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return LEAF
    if not isinstance(applied, dict) or applied.get("apiVersion") != api_version or complaints(applied, shape):
        return LEAF
    try:
        changed, removed = compare_maps(applied, live, shape)
        fields = claimed(applied, shape) or LEAF
    except ItemError:
        return LEAF
    return difference(difference(fields, changed or LEAF), removed or LEAF)


def refresh(obj: dict[str, Any], config: dict[str, Any]) -> None:
    """Write the configuration into the annotation of an object that has one."""
    if not remembered(obj):
        return
    annotations = {**obj["metadata"]["annotations"], ANNOTATION: _encoded(config)}
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items()) > _LARGEST_ANNOTATIONS:
        del annotations[ANNOTATION]
    obj["metadata"] = {**obj["metadata"], "annotations": annotations}


def _encoded(config: dict[str, Any]) -> str:
    metadata = config.get("metadata") or {}
    if isinstance(metadata.get("annotations"), dict):
        others = {key: value for key, value in metadata["annotations"].items() if key != ANNOTATION}
        config = {**config, "metadata": {**metadata, "annotations": others}}
    text = msgspec.json.encode(config, order="sorted").decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text + "\n"
