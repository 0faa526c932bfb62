"""Creation of a Job for a machine or a cluster, and cleanup of the objects that it needed.

The objects that a Job needs are created before the Job and deleted before it: an existing Job shows that there are
objects to delete. The state Secret is the exception: it exists as long as its machine or RKECluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.jobs import marks
from remuda.jobs.types import Job
from remuda.kube.authorization import Subject
from remuda.kube.client import Client, Propagation, Target
from remuda.kube.core import JOBS, NAMESPACES, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import AlreadyExists, NotFound, ignore_not_found
from remuda.kube.objects import Key, Kind, Object
from remuda.providers import ProviderError
from remuda.providers.shared import author, credentials
from remuda.providers.shared.drivers.spi import ClusterOrder, Needs, Order
from remuda.providers.shared.jobs import manifests, protection
from remuda.providers.shared.jobs.job_context import JobContext
from remuda.providers.shared.jobs.manifests import JobOwner
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.machine import BAD_CREDENTIAL_REFERENCE, CREDENTIAL_FORBIDDEN, CREDENTIAL_NOT_FOUND
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

PREPARE = step("drivermachine.prepare-job", "writes a Secret or a permission that a Job needs")
START = step("drivermachine.start-job", "creates a Job for a server or for cluster infrastructure")
STOP = step("drivermachine.delete-job", "deletes a Job, and so stops it if it is running")
CLEAR = step("drivermachine.clear", "deletes a Secret or a permission that no Job needs any more")

Json = dict[str, Any]

PREVIOUS_JOB = "waiting until the Job of the previous attempt is deleted; then the next attempt starts"
_RIGHTS_SECONDS = 60.0  # until an author's rights are asked about again
_HEAD = Kind("", "", "", Object)


class Missing(ProviderError):
    """An input of the Job is missing; the message is for users."""

    def __init__(self, reason: str, on: str, message: str, check_after: float = 15.0) -> None:
        """`check_after`: seconds; what is missing is not watched, because it is somebody else's."""
        super().__init__(message)
        self.reason = reason
        self.on = on
        self.check_after = check_after


class JobInputs(msgspec.Struct, frozen=True):
    """Inputs for creating a Job: client, settings, the object it is for, and its existing Job."""

    client: Client
    settings: MachineSettings
    place: JobOwner
    job: Job | None  # the one there is
    known: Mapping[str, bytes] = {}  # elsewhere: what the state Secret holds

    def __str__(self) -> str:
        return f"{self.place.kind.name} {self.place.metadata.namespace}/{self.place.metadata.name}"


async def credential_fields(context: JobContext, reference: str, namespace: str, who: str) -> Mapping[str, bytes]:
    """Return the fields of the credential, read for each Job so that changes take effect. Raises Missing."""
    if not reference:
        return {}
    try:
        key = credentials.place(reference, namespace)
    except credentials.BadReference as error:
        raise Missing(BAD_CREDENTIAL_REFERENCE, who, str(error)) from None
    data = await context.secret(*key)
    if data is None:
        raise Missing(CREDENTIAL_NOT_FOUND, f"Secret {key}", f"the credential Secret {key} does not exist")
    return credentials.fields(data)


async def protect_credential(context: JobContext, reference: str, namespace: str) -> None:
    """Keep the credential for the removal of what is made with it."""
    try:
        if reference:
            await context.protect(credentials.place(reference, namespace))
    except credentials.BadReference:
        pass  # nothing was made with it


async def check_author(context: JobContext, chosen_by: Subject | None, reference: str, obj: Object, who: str) -> None:
    """Check that the recorded author still has the right to the credential, before a server is created with it. Raises
    Missing. Where there is no author, an event says so."""
    if not reference:
        return
    if chosen_by is None:
        context.events.warning(obj, author.NO_AUTHOR, author.unknown(who))
        return
    if why := await author.check(context.client, chosen_by, reference, obj.metadata.namespace):
        raise Missing(CREDENTIAL_FORBIDDEN, who, why, _RIGHTS_SECONDS)


async def inputs_for_removal(context: JobContext, inputs: JobInputs) -> JobInputs:
    """Return where a Job that removes something can be made: in the manager's own namespace, if the other is being
    deleted. Raises Retryable while a Job there may still be at work."""
    place = inputs.place
    if not await context.terminating(place.metadata.namespace):
        return inputs
    # The deletion of a namespace deletes its Jobs at once, but their Pods may still be at work on the server.
    if left := await context.running_pods(place):
        raise Retryable(f"waiting for Pod {left[0].key} to stop; its Job was deleted with its namespace")
    known = await context.secret(place.namespace, place.state) or {}
    elsewhere = context.elsewhere(place)
    await _make_namespace(inputs.client, elsewhere.namespace)
    return msgspec.structs.replace(inputs, place=elsewhere, known=known)


async def _make_namespace(client: Client, name: str) -> None:
    try:
        await client.get(NAMESPACES, "", name)
    except NotFound:
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        async with PREPARE:
            await client.create(NAMESPACES, "", obj)


async def start(
    inputs: JobInputs,
    order: Order | ClusterOrder,
    fields: Mapping[str, bytes],
    value: bytes = b"",
    format: bytes = b"",
    *,
    local: bool,
    needs: Needs,
    pool: str = "",
    owner: str = "",
    digest: str = "",
) -> None:
    """`local`: only our own runner can run it. `needs`: the rights that it has there."""
    place = inputs.place
    order = msgspec.structs.replace(order, state_secret=place.state, state_namespace=place.elsewhere)
    if local and not inputs.settings.run_jobs:
        raise Retryable(f"only Remuda's own job runner can run Jobs of driver {order.driver}")
    # Never renewed: an earlier attempt may have recorded its server there.
    await _make(inputs, SECRETS, manifests.state_secret(place, inputs.known))
    mounted = [manifests.order_secret(place, order, value, format)]
    if fields:
        mounted.append(manifests.credential_secret(place, fields))
    # Renewed for each Job: options and credentials may have changed since the last attempt.
    for secret in mounted:
        await _make(inputs, SECRETS, secret, renew=True)
    await _make(inputs, SERVICE_ACCOUNTS, manifests.account(place))
    await _make(inputs, ROLES, manifests.role(place))
    await _make(inputs, ROLE_BINDINGS, manifests.role_binding(place))
    job = manifests.job(place, order, inputs.settings, credentials=bool(fields), pool=pool, owner=owner, digest=digest)
    if inputs.settings.run_jobs and inputs.settings.job_key is not None:
        # The runner executes Jobs on the manager's machine. The mark covers the contents of the Secrets, so users with
        # access to the namespace can change neither the Job nor its order.
        job = marks.sign(inputs.settings.job_key, job, manifests.contents(mounted), needs.rights)
    async with START:
        await inputs.client.create(JOBS, place.namespace, job)


async def _make(inputs: JobInputs, target: Target, obj: Json, *, renew: bool = False) -> None:
    """Create an object unless it exists. `renew`: overwrite an existing one; otherwise it stays unchanged."""
    client, namespace, name = inputs.client, obj["metadata"]["namespace"], obj["metadata"]["name"]
    with contextlib.suppress(AlreadyExists):
        async with PREPARE:
            await client.create(target, namespace, obj)
        return
    metadata = _HEAD.decode(await client.get(target, namespace, name)).metadata
    owner = metadata.controller
    # The name is predictable, so anybody may have created this object. A Job must not use its contents.
    if not inputs.place.owns(metadata):
        whose = f"{owner.kind} {owner.name}" if owner is not None else "nobody"
        raise Retryable(f"{target.plural} {namespace}/{name} already exists and belongs to {whose}, not to {inputs}")
    if renew:
        async with PREPARE:
            await client.update(target, namespace, name, obj)


async def stop(inputs: JobInputs, job: Job) -> None:
    """Delete a Job. A Job that still runs remains, being deleted, until its Pods are deleted."""
    # With Background, the Job would be gone while its Pod still runs, and a second Job could work on the same server.
    propagation: Propagation = "Foreground" if job.finished is None else "Background"
    await _delete(inputs, JOBS, job.key, STOP, uid=job.metadata.uid, propagation=propagation)


async def clear(inputs: JobInputs, *, credential: bool) -> None:
    """Delete the Job's objects except the state Secret; the Job itself is last."""
    for target in (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SECRETS):
        await _delete(inputs, target, inputs.place.job_key, CLEAR)
    if credential:
        await _delete(inputs, SECRETS, Key(inputs.place.namespace, inputs.place.credential), CLEAR)
    if inputs.job is not None:
        await stop(inputs, inputs.job)


async def clear_all(context: JobContext, inputs: JobInputs, *, credential: bool) -> None:
    """Delete all objects of a Job, including those in the manager's namespace."""
    places = [inputs.place]
    if await context.terminating(inputs.place.metadata.namespace):
        places.append(context.elsewhere(inputs.place))
    for place in places:
        there = msgspec.structs.replace(inputs, place=place)
        state = Key(place.namespace, place.state)
        if not place.elsewhere:
            await protection.release(inputs.client, state)
        await _delete(there, SECRETS, state, CLEAR)
        await clear(there, credential=credential)


async def _delete(
    inputs: JobInputs, target: Target, key: Key, act: Any, *, uid: str | None = None, propagation: Propagation = ""
) -> None:
    with ignore_not_found():
        async with act:
            await inputs.client.delete(target, *key, uid=uid, propagation=propagation)
