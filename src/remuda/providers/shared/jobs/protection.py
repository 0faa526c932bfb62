"""Secrets that removal needs: a finalizer keeps them when their namespace is deleted.

Deleting a namespace deletes its Secrets at once, on every engine, and no Job can be created there any more. The servers
of its clusters still have to be removed. Their state Secrets and credentials therefore carry a finalizer from before a
server is asked for, and the Jobs that remove servers run in the manager's own namespace then. `secret_guard` removes
the finalizer from Secrets that are being deleted and that nothing needs.
"""

from __future__ import annotations

from typing import Any

from remuda.capi.remote import without_data
from remuda.kube.client import Client
from remuda.kube.core import SECRET, SECRETS, Secret
from remuda.kube.errors import NotFound
from remuda.kube.objects import Key
from remuda.runtime.caches import Caches, Informer
from remuda.runtime.draft import Draft, save
from remuda.runtime.steps import step

PROTECT = step("drivermachine.protect-secret", "adds the finalizer to a Secret that is needed to remove a server")
RELEASE = step("drivermachine.release-secret", "removes the finalizer of a Secret that is no longer needed")

FINALIZER = "remuda.dev/removal"
LABEL = "remuda.dev/needed-for-removal"  # by which protected Secrets are watched


def informer(caches: Caches) -> Informer[Secret]:
    """Return the cache of protected Secrets, without their contents."""
    return caches.of(SECRET, label_selector=LABEL, metadata_only=True, transform=without_data)


def protected(made: dict[str, Any]) -> dict[str, Any]:
    """Return a Secret that is about to be created, protected from its first moment."""
    metadata = made["metadata"]
    labels = {**metadata["labels"], LABEL: "true"}
    return {**made, "metadata": {**metadata, "labels": labels, "finalizers": [FINALIZER]}}


async def protect(client: Client, cache: Informer[Secret], key: Key) -> bool:
    """Protect a Secret, unless it is protected already. Return False if it is missing or being deleted."""
    found = cache.get(*key)
    if found is not None and FINALIZER in found.metadata.finalizers:
        return True
    draft = await _draft(client, key)
    if draft is None or draft.deleting:
        return False
    draft.add_finalizer(FINALIZER)
    draft.set_label(LABEL, "true")
    await save(client, draft, PROTECT)
    return True


async def release(client: Client, key: Key) -> None:
    draft = await _draft(client, key)
    if draft is not None and draft.remove_finalizer(FINALIZER):
        draft.set_label(LABEL, None)
        await save(client, draft, RELEASE)


async def _draft(client: Client, key: Key) -> Draft | None:
    try:
        return Draft(SECRETS, await client.get(SECRETS, *key))
    except NotFound:
        return None
