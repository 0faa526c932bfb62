"""Installation of CustomResourceDefinitions: creates missing ones, updates different ones, and waits until they are
served.

A definition without our label belongs to another owner, whose controllers would conflict with ours on every object:
then nothing is written. If all definitions are up to date, nothing is written either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from itertools import count
from typing import Any

import msgspec

from remuda.kube import conditions
from remuda.kube.client import Client
from remuda.kube.definitions import DEFINITION, OWNER, OWNERSHIP_LABEL
from remuda.kube.errors import AlreadyExists, Conflict, Gone, NotFound
from remuda.runtime import ControllerRuntimeError
from remuda.runtime.queue import Backoff
from remuda.runtime.steps import note_write, step

INSTALL = step("definitions.install", "creates or updates one CustomResourceDefinition")

_RACES = Backoff(first=0.01, most=1.0)
_OURS = f"{OWNERSHIP_LABEL}={OWNER}"


class ForeignDefinitions(ControllerRuntimeError):
    """Existing definitions that belong to another owner."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"{', '.join(names)}: already installed by another program (no label {_OURS}). Two programs cannot manage "
            "the same kinds: use a cluster without them, or remove the other program with its definitions first."
        )
        self.names = tuple(names)


class NotEstablished(ControllerRuntimeError):
    """Definitions that the server does not serve."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name} is not served: {reason}" for name, reason in sorted(reasons.items())))
        self.reasons = reasons


async def install(client: Client, definitions: Sequence[dict[str, Any]], *, timeout_seconds: float = 30.0) -> None:
    """Install the definitions; return when all are served. Raises ForeignDefinitions, NotEstablished, StatusError."""
    present = await asyncio.gather(*(_read(client, definition["metadata"]["name"]) for definition in definitions))
    foreign = [found["metadata"]["name"] for found in present if found is not None and not is_ours(found)]
    if foreign:
        raise ForeignDefinitions(foreign)
    for definition, found in zip(definitions, present, strict=True):
        await _put(client, definition, found)
    await _established(client, (definition["metadata"]["name"] for definition in definitions), timeout_seconds)


def is_ours(definition: dict[str, Any]) -> bool:
    labels = definition["metadata"].get("labels") or {}
    return bool(labels.get(OWNERSHIP_LABEL) == OWNER)


def revised(present: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object that turns `present` into `wanted`; None if nothing differs.

    Labels and annotations of other writers are preserved.
    """
    metadata = present["metadata"]
    labels = {**(metadata.get("labels") or {}), **wanted["metadata"]["labels"]}
    if present["spec"] == wanted["spec"] and labels == metadata.get("labels"):
        return None
    return {**present, "metadata": {**metadata, "labels": labels}, "spec": wanted["spec"]}


async def _read(client: Client, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = msgspec.json.decode(await client.get(DEFINITION.target, "", name))
    except NotFound:
        return None
    return found


async def _put(client: Client, wanted: dict[str, Any], present: dict[str, Any] | None) -> None:
    name = wanted["metadata"]["name"]
    for attempt in count(1):
        with suppress(AlreadyExists, Conflict):
            return await _write(client, name, wanted, present)
        await asyncio.sleep(_RACES.seconds(attempt))  # the other writer's object may not be readable yet
        present = await _read(client, name)  # another writer was faster: read what it wrote
        if present is not None and not is_ours(present):
            raise ForeignDefinitions([name])


async def _write(client: Client, name: str, wanted: dict[str, Any], present: dict[str, Any] | None) -> None:
    if present is None:
        async with INSTALL:
            await client.create(DEFINITION.target, "", wanted)
            note_write("create", DEFINITION.plural, "", name, "")
        return
    if "deletionTimestamp" in present["metadata"]:
        raise NotEstablished({name: "it is being deleted; start again when the deletion is complete"})
    revision = revised(present, wanted)
    if revision is not None:
        async with INSTALL:
            await client.update(DEFINITION.target, "", name, revision)
            note_write("update", DEFINITION.plural, "", name, "")


async def _established(client: Client, names: Iterable[str], timeout_seconds: float) -> None:
    waiting = dict.fromkeys(names, "the server has not reported a condition yet")
    try:
        async with asyncio.timeout(timeout_seconds):
            while waiting:
                await _follow(client, waiting)
    except TimeoutError:
        raise NotEstablished(waiting) from None


async def _follow(client: Client, waiting: dict[str, str]) -> None:
    """List and watch once; remove served definitions from `waiting`."""
    listing = await client.list(DEFINITION.target, label_selector=_OURS)
    for value in listing.items:
        _settle(value, waiting)
    if not waiting:
        return
    changes = client.watch(DEFINITION.target, label_selector=_OURS, resource_version=listing.resource_version)
    async with aclosing(changes):
        with suppress(Gone):
            async for change in changes:
                if change.type in ("ADDED", "MODIFIED"):
                    _settle(change.value, waiting)
                if not waiting:
                    return


def _settle(value: bytes, waiting: dict[str, str]) -> None:
    definition = DEFINITION.decode(value)
    name = definition.metadata.name
    if name not in waiting:
        return
    reported = definition.status.conditions or ()
    if conditions.is_true(reported, "Established"):
        del waiting[name]
        return
    accepted = conditions.find(reported, "NamesAccepted")
    if accepted is not None and accepted.status == "False":
        raise NotEstablished({name: accepted.message})
