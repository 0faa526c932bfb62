"""Labels and annotations handed down from one object to another, and taken away again when they go from the first.

Whoever hands metadata down must not touch what others put on the object, so it has to know what it put there itself.
The API server keeps exactly that, per field manager, in managedFields; nothing else is stored. A change is one merge
patch of the keys that differ, and none is sent when nothing does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from remuda.kube.client import Client
from remuda.runtime.draft import Draft

# Field managers, named as other implementations of Cluster API name them: objects they made are taken over as they are.
BY_DEPLOYMENT = "capi-machinedeployment"
BY_SET = "capi-machineset"
BY_SET_METADATA = "capi-machineset-metadata"


def hand_down(
    draft: Draft,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    managers: Collection[str],
    *,
    keep: Collection[str] = (),
) -> None:
    """Sets them on the draft, and removes what these managers had set and is neither given nor to be kept."""
    own_labels, own_annotations = owned(draft.value, managers)
    _hand_down(draft, "labels", labels, own_labels.difference(keep))
    _hand_down(draft, "annotations", annotations, own_annotations.difference(keep))


def _hand_down(draft: Draft, part: str, given: Mapping[str, str], own: set[str]) -> None:
    present = draft.metadata.get(part) or {}
    for key in own - given.keys():
        present.pop(key, None)
    if given:
        draft.metadata[part] = {**present, **given}


class _Set(msgspec.Struct):
    """The fields one manager set, as far as metadata goes; keys are written `f:<name>`."""

    class Metadata(msgspec.Struct):
        labels: dict[str, Any] = msgspec.field(default_factory=dict, name="f:labels")
        annotations: dict[str, Any] = msgspec.field(default_factory=dict, name="f:annotations")

    metadata: Metadata = msgspec.field(default_factory=Metadata, name="f:metadata")


class _Entry(msgspec.Struct, rename="camel"):
    manager: str = ""
    subresource: str = ""
    fields: _Set = msgspec.field(default_factory=_Set, name="fieldsV1")


class _Object(msgspec.Struct):
    class Metadata(msgspec.Struct, rename="camel"):
        managed_fields: list[_Entry] = []

    metadata: Metadata


_decode = msgspec.json.Decoder(_Object).decode


def owned(value: bytes, managers: Collection[str]) -> tuple[set[str], set[str]]:
    """The keys of labels and of annotations that these managers set last."""
    labels: set[str] = set()
    annotations: set[str] = set()
    for entry in _decode(value).metadata.managed_fields:
        if entry.manager in managers and not entry.subresource:
            labels.update(_names(entry.fields.metadata.labels))
            annotations.update(_names(entry.fields.metadata.annotations))
    return labels, annotations


def _names(fields: Mapping[str, Any]) -> Iterable[str]:
    return (field[2:] for field in fields if field.startswith("f:"))


async def send(client: Client, draft: Draft, manager: str) -> bytes:
    """Writes what has changed outside status, under the name of the manager."""
    patch, _ = draft.patches()
    patch.setdefault("metadata", {})["resourceVersion"] = draft.resource_version
    return await client.patch(draft.target, *draft.key, patch, field_manager=manager)
