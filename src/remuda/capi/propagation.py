"""Propagation from one object to another in place: labels and annotations, with their removal when the first object
loses them, and the fields of a Machine's spec that change without replacing the Machine.

A controller must not remove metadata that other clients set, so it must know what it has set itself. The API server
records that per field manager in managedFields; nothing else is stored. Caches drop managedFields, so the object is
read from the server, but only if it has a key that is neither desired nor known to belong to another client. A change
is one merge patch of the differences; without differences, nothing is sent.

Fields that change in place go down from a MachineDeployment's template to those of its MachineSets, and from there to
the Machines. All other fields of a template only apply to Machines made from it later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from remuda.kube.client import Client
from remuda.runtime.draft import Draft

Json = dict[str, Any]

# Field managers, named as other implementations of Cluster API name them: objects they made are taken over as they are.
BY_DEPLOYMENT = "capi-machinedeployment"
BY_SET = "capi-machineset"
BY_SET_METADATA = "capi-machineset-metadata"

_MOST_REMEMBERED = 50_000  # objects; beyond that, each costs one more read
_TIMEOUTS = ("nodeDrainTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds", "nodeDeletionTimeoutSeconds")
_OTHERS = ("minReadySeconds", "readinessGates", "taints")
# The default that admission sets: there is no point in removing it.
_FILLED_IN = ("nodeDeletionTimeoutSeconds", 10)


class Keys(NamedTuple):
    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()

    def __and__(self, other: Keys) -> Keys:
        return Keys(self.labels & other.labels, self.annotations & other.annotations)

    def __sub__(self, other: Keys) -> Keys:
        return Keys(self.labels - other.labels, self.annotations - other.annotations)


class Ownership:
    """Distinguishes metadata that we propagated from metadata of other clients, and caches the latter in memory."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._others: dict[str, Keys] = {}  # by uid: keys of an object that are known not to be ours

    async def stale(
        self,
        draft: Draft,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        managers: Collection[str],
        *,
        keep: Collection[str] = (),
    ) -> Keys:
        """Return the labels and annotations that these managers set on an object and that are neither desired any more
        nor in `keep`."""
        metadata = draft.base["metadata"]
        self._forget_given(metadata["uid"], Keys(frozenset(labels), frozenset(annotations)))
        extra = Keys(
            frozenset(metadata.get("labels") or ()) - labels.keys() - set(keep),
            frozenset(metadata.get("annotations") or ()) - annotations.keys() - set(keep),
        )
        if not any(extra) or self._others.get(metadata["uid"]) == extra:
            return Keys()
        ours = owned(await self._client.get(draft.target, *draft.key), managers) & extra
        if len(self._others) >= _MOST_REMEMBERED:
            self._others.clear()
        self._others[metadata["uid"]] = extra - ours
        return ours

    def _forget_given(self, uid: str, given: Keys) -> None:
        """Drop the keys that we set now from those known to be others': setting a key makes it ours, whoever owned
        it."""
        known = self._others.get(uid)
        if known is not None and any(known & given):
            self._others[uid] = known - given


def propagate(draft: Draft, labels: Mapping[str, str], annotations: Mapping[str, str], stale: Keys) -> None:
    """Sets what is given on the draft, and removes what is stale."""
    _propagate(draft, "labels", labels, stale.labels)
    _propagate(draft, "annotations", annotations, stale.annotations)


def _propagate(draft: Draft, part: str, given: Mapping[str, str], stale: Collection[str]) -> None:
    present = {key: value for key, value in (draft.metadata.get(part) or {}).items() if key not in stale}
    if present or given or part in draft.metadata:
        draft.metadata[part] = {**present, **given}


class _Fields(msgspec.Struct):
    """The fields one manager set, as far as metadata goes; keys are written `f:<name>`."""

    class Metadata(msgspec.Struct):
        labels: dict[str, Any] = msgspec.field(default_factory=dict, name="f:labels")
        annotations: dict[str, Any] = msgspec.field(default_factory=dict, name="f:annotations")

    metadata: Metadata = msgspec.field(default_factory=Metadata, name="f:metadata")


class _Entry(msgspec.Struct):
    manager: str = ""
    subresource: str = ""
    fields: _Fields = msgspec.field(default_factory=_Fields, name="fieldsV1")


class _Object(msgspec.Struct):
    class Metadata(msgspec.Struct):
        managed: list[_Entry] = msgspec.field(default_factory=list, name="managedFields")

    metadata: Metadata


_decode = msgspec.json.Decoder(_Object).decode


def owned(value: bytes, managers: Collection[str]) -> Keys:
    """Return the labels and annotations that these managers set last, from an object as the server returns it."""
    found = [
        entry.fields.metadata
        for entry in _decode(value).metadata.managed
        if entry.manager in managers and not entry.subresource
    ]
    return Keys(
        frozenset(key for fields in found for key in _names(fields.labels)),
        frozenset(key for fields in found for key in _names(fields.annotations)),
    )


def _names(fields: Mapping[str, Any]) -> Iterable[str]:
    return (field[2:] for field in fields if field.startswith("f:"))


async def send(client: Client, draft: Draft, manager: str) -> bytes:
    """Writes what has changed outside status, under the name of the manager."""
    patch, _ = draft.patches()
    patch.setdefault("metadata", {})["resourceVersion"] = draft.resource_version
    return await client.patch(draft.target, *draft.key, patch, field_manager=manager)


def propagate_fields(source: Mapping[str, Any], target: Json) -> None:
    """Copy the fields that change in place from the spec `source` to the spec `target`."""
    for name in _OTHERS:
        if source.get(name) is not None:
            target[name] = source[name]
        else:
            target.pop(name, None)
    propagate_timeouts(source, target)


def propagate_timeouts(source: Mapping[str, Any], target: Json) -> None:
    """Only what matters to Machines on their way out."""
    wanted = source.get("deletion") or {}
    present = dict(target.get("deletion") or {})
    for name in _TIMEOUTS:
        if wanted.get(name) is not None:
            present[name] = wanted[name]
        elif (name, present.get(name)) != _FILLED_IN:
            present.pop(name, None)
    if present:
        target["deletion"] = present
    else:
        target.pop("deletion", None)
