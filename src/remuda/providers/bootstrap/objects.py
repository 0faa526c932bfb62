"""Access to objects for requests of hosts: uncached reads, waits by a watch, and conditions written without conflicts.

Nothing is cached: the answer to a host must not be older than its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import TypeVar

from remuda.kube import conditions
from remuda.kube.client import Client
from remuda.kube.errors import Conflict, Gone, NotFound
from remuda.kube.objects import Condition, Key, Kind, Object
from remuda.providers import ProviderError
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.runtime.draft import Draft, save
from remuda.runtime.queue import Backoff
from remuda.runtime.steps import Step

RACES = 10
RACE = Backoff(first=0.01, most=1.0)  # the other writer's object may not be readable yet

T = TypeVar("T", bound=Object)


class Contested(ProviderError):
    """Error for an object that other writers change too often to be updated."""


async def find(client: Client, kind: Kind[T], key: Key) -> T | None:
    try:
        return kind.decode(await client.get(kind.target, *key))
    except NotFound:
        return None


async def until(client: Client, kind: Kind[T], key: Key, holds: Callable[[T], bool], seconds: float) -> T:
    """Return the object as soon as the condition holds. Raises TimeoutError."""
    present = await find(client, kind, key)  # as most often it is, and much cheaper than a list
    if present is not None and holds(present):
        return present
    async with asyncio.timeout(seconds):
        while True:
            found = await _follow(client, kind, key, holds)
            if found is not None:
                return found


async def _follow(client: Client, kind: Kind[T], key: Key, holds: Callable[[T], bool]) -> T | None:
    selector = f"metadata.name={key.name}"
    listing = await client.list(kind.target, key.namespace, field_selector=selector)
    for item in listing.items:
        if holds(found := kind.decode(item)):
            return found
    changes = client.watch(
        kind.target, key.namespace, field_selector=selector, resource_version=listing.resource_version
    )
    async with aclosing(changes):
        with suppress(Gone):
            async for change in changes:
                if change.type in ("ADDED", "MODIFIED") and holds(found := kind.decode(change.value)):
                    return found
    return None


async def mark(client: Client, bootstrap: Key, news: Condition, step: Step) -> None:
    """Write a condition of an RKEBootstrap, unless it is set already. Raises Contested."""
    for attempt in range(1, RACES):
        value = await client.get(RKE_BOOTSTRAP.target, *bootstrap)
        found = RKE_BOOTSTRAP.decode(value)
        present = conditions.find(found.status.conditions, news.type)
        if present is not None and (present.status, present.message) == (news.status, news.message):
            return
        draft = Draft(RKE_BOOTSTRAP.target, value)
        conditions.put(draft.status, [news], generation=found.metadata.generation)
        with suppress(Conflict):
            await save(client, draft, step)
            return
        await asyncio.sleep(RACE.seconds(attempt))
    raise Contested(f"RKEBootstrap {bootstrap} changes too often")


async def delete(client: Client, kind: Kind[T], obj: T) -> None:
    """Delete this object, by its uid; it may be deleted already."""
    with suppress(NotFound, Conflict):
        await client.delete(kind.target, *obj.key, uid=obj.metadata.uid)
