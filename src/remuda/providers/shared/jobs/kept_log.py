"""Logs of a machine's Jobs, readable after the Jobs and the machine are deleted.

A Job writes the end of its log, redacted and compressed, to the machine-state Secret. When the machine is deleted, the
controller copies the logs to a Secret of their own, which belongs to the Cluster and is deleted with it. It keeps the
newest ones of each cluster, so many machines that come and go fill no disk. A Job that is killed leaves no log here.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, Cluster
from remuda.kube.client import Client, list_all
from remuda.kube.core import SECRETS
from remuda.kube.errors import AlreadyExists, ignore_not_found
from remuda.kube.objects import Key, Kind, Object, OwnerReference
from remuda.providers.shared import names
from remuda.runtime.steps import Step, step

KEEP = step("drivermachine.keep-log", "keeps the logs of a machine that is deleted")

CREATE_LOG, REMOVE_LOG = "create.log.gz", "remove.log.gz"  # keys of both Secrets
LABEL = "remuda.dev/machine-logs-of"  # label of the Secrets with logs: the cluster
MOST_SECRETS = 20  # of one cluster
MOST_BYTES = 16 * 1024  # of one log, before compression

_HEAD = Kind("v1", "Secret", "secrets", Object)
_CUT = "… the beginning of this log was not kept\n"


class LogTail:
    """The last lines of a log, of bounded size."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._cut = False

    def add(self, text: str) -> None:
        for line in text.splitlines():
            # Characters, not bytes: a log of other scripts may be a few times larger than the limit.
            self._lines.append(line[-MOST_BYTES:])
            self._size += len(self._lines[-1]) + 1
        while self._size > MOST_BYTES and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1
            self._cut = True

    def packed(self) -> bytes:
        text = (_CUT if self._cut else "") + "".join(f"{line}\n" for line in self._lines)
        return gzip.compress(text.encode(), mtime=0)


def unpacked(data: bytes) -> str:
    """Return the text of a kept log; empty if it cannot be read. Bounded, because users can write the Secret."""
    try:
        text = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(data, 8 * MOST_BYTES)
    except zlib.error:
        return ""
    return text.decode("utf-8", "replace")


def in_secret(data: Mapping[str, bytes]) -> str:
    """Return the logs of a Secret's data, of the creation first; empty if there are none."""
    return "".join(unpacked(data[key]) for key in (CREATE_LOG, REMOVE_LOG) if key in data)


async def keep(client: Client, cluster: Cluster, machine: Key, data: Mapping[str, bytes], drop: Step) -> None:
    """Copy the logs of a machine to a Secret of the Cluster, and delete the oldest ones with the step `drop`. `data`:
    of the machine-state Secret."""
    logs = {key: base64.b64encode(data[key]).decode() for key in (CREATE_LOG, REMOVE_LOG) if key in data}
    if not logs:
        return
    label = capi_names.label_value(cluster.metadata.name)
    owner = OwnerReference(
        api_version=CLUSTER.api_version, kind=CLUSTER.name, name=cluster.metadata.name, uid=cluster.metadata.uid
    )
    secret: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.machine_log(machine.name),
            "namespace": machine.namespace,
            "labels": {LABEL: label},
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "type": names.LOG_TYPE,
        "data": logs,
    }
    try:
        async with KEEP:
            await client.create(SECRETS, machine.namespace, secret)
    except AlreadyExists:  # this ran before a crash, or an earlier machine had the name
        async with KEEP:
            await client.patch(SECRETS, machine.namespace, names.machine_log(machine.name), {"data": logs})
        return
    listing = await list_all(client, SECRETS, machine.namespace, label_selector=f"{LABEL}={label}")
    kept = [_HEAD.decode(value).metadata for value in listing.items]
    oldest_first = sorted(kept, key=lambda one: (one.creation_timestamp or "", one.name))
    for one in oldest_first[:-MOST_SECRETS]:
        with ignore_not_found():
            async with drop:
                await client.delete(SECRETS, one.namespace, one.name, uid=one.uid)
