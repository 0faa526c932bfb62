"""Secrets and ConfigMaps of other owners that a spec only names.

Their metadata is watched, so that their creation and every change requeues the control planes that name them. Their
contents are read from the server on demand, and only the ones read last are cached. Plan Secrets and the like, which
hosts write all the time, are not watched.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from remuda.capi.remote import SECRET
from remuda.kube.client import Client
from remuda.kube.errors import NotFound
from remuda.kube.objects import Key, Kind, Object
from remuda.providers.shared import names
from remuda.runtime.informer import Informer
from remuda.runtime.manager import Manager

CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps", Object)

_KEPT = 256


class ReferencedObject(msgspec.Struct, frozen=True):
    """A referenced object with its contents."""

    kind: str
    key: Key
    type: str
    annotations: Mapping[str, str]
    data: Mapping[str, bytes]
    version: str = ""  # resourceVersion

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class ReferencedObjects:
    def __init__(self, manager: Manager) -> None:
        self._client: Client = manager.client
        caches = manager.caches
        self.secrets: Informer[Object] = caches.of(
            SECRET, label_selector=f"!{names.CLUSTER_NAME}", metadata_only=True, transform=_head
        )
        # A separate cache besides that of the pools' failures, which has other Secrets.
        self.config_maps: Informer[Object] = caches.of(
            CONFIG_MAP, label_selector=f"!{names.MACHINE_FAILURES}", metadata_only=True, transform=_head
        )
        self._read: OrderedDict[tuple[str, Key], tuple[str, ReferencedObject]] = OrderedDict()

    async def secret(self, key: Key) -> ReferencedObject | None:
        return await self._get(SECRET, self.secrets, key)

    async def config_map(self, key: Key) -> ReferencedObject | None:
        return await self._get(CONFIG_MAP, self.config_maps, key)

    async def _get(self, kind: Kind[Object], informer: Informer[Object], key: Key) -> ReferencedObject | None:
        """Read an object, even if the informer does not see it: its namespace or label may not be watched."""
        seen = informer.get(*key)
        place = (kind.name, key)
        kept = self._read.get(place)
        if seen is not None and kept is not None and kept[0] == seen.metadata.resource_version:
            self._read.move_to_end(place)
            return kept[1]
        try:
            value = await self._client.get(kind.target, *key)
        except NotFound:
            return None
        found = held(kind.name, value)
        self._read[place] = (found.version, found)
        while len(self._read) > _KEPT:
            self._read.popitem(last=False)
        return found


class _Raw(Object):
    type: str = ""
    data: Mapping[str, str] = {}
    binary_data: Mapping[str, str] = {}


_RAW = Kind("v1", "", "", _Raw)


def held(kind: str, value: bytes) -> ReferencedObject:
    raw = _RAW.decode(value)
    version = raw.metadata.resource_version
    if kind == CONFIG_MAP.name:
        plain = {name: text.encode() for name, text in raw.data.items()}
        return ReferencedObject(
            kind, raw.key, "", raw.metadata.annotations, {**plain, **_decoded(raw.binary_data)}, version
        )
    return ReferencedObject(kind, raw.key, raw.type, raw.metadata.annotations, _decoded(raw.data), version)


def _decoded(values: Mapping[str, str]) -> dict[str, bytes]:
    found = {}
    for name, text in values.items():
        try:
            found[name] = base64.b64decode(text)
        except binascii.Error:  # the server checks it; what got past is as if it were not there
            continue
    return found


def _head(value: bytes) -> bytes:
    obj = msgspec.json.decode(value)
    kept = {name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj}
    for name in ("managedFields", "ownerReferences"):
        kept["metadata"].pop(name, None)
    return msgspec.json.encode(kept)
