"""Starting a Job for a machine or a cluster, and clearing away what it needed.

What a Job needs is written before the Job and goes before it: a Job that is there is the mark that there is something
to clear away. The state Secret is the exception: it stays for as long as what it is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.jobs import marks
from remuda.jobs.types import Job
from remuda.kube.authorization import Subject
from remuda.kube.client import Client, Propagation, Target
from remuda.kube.core import JOBS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Kind, Object
from remuda.providers import author
from remuda.providers.machine import credentials, manifests
from remuda.providers.machine.manifests import Place
from remuda.providers.machine.office import Office
from remuda.providers.machine.settings import MachineSettings
from remuda.providers.machine.spi import ClusterOrder, Needs, Order
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

PREPARE = step("drivermachine.prepare-job", "writes a Secret or a right that a Job needs")
START = step("drivermachine.start-job", "creates the Job that works on a server, or on what a cluster shares")
STOP = step("drivermachine.delete-job", "deletes a Job, which ends it if it still runs")
CLEAR = step("drivermachine.clear", "deletes a Secret or a right that no Job needs any more")

Json = dict[str, Any]

_RIGHTS_SECONDS = 60.0  # until an author's rights are asked about again
_NOT_FOUND = 404
_HEAD = Kind("", "", "", Object)


class Missing(Exception):
    """Something the Job would need is not there; the text is for users."""

    def __init__(self, reason: str, on: str, message: str, check_after: float = 15.0) -> None:
        """`check_after`: seconds; what is missing is not watched, because it is somebody else's."""
        super().__init__(message)
        self.reason = reason
        self.on = on
        self.check_after = check_after


class Desk(msgspec.Struct, frozen=True):
    """Where Jobs are made: for whom, and how."""

    client: Client
    settings: MachineSettings
    place: Place
    job: Job | None  # the one there is

    def __str__(self) -> str:
        return f"{self.place.kind.name} {self.place.metadata.namespace}/{self.place.metadata.name}"


async def credential_fields(office: Office, reference: str, namespace: str, who: str) -> Mapping[str, bytes]:
    """Read anew for each Job, so that credentials that were changed are used. Raises Missing."""
    if not reference:
        return {}
    try:
        key = credentials.place(reference, namespace)
    except credentials.BadReference as error:
        raise Missing("BadCredentialReference", who, str(error)) from None
    data = await office.secret(*key)
    if data is None:
        raise Missing("CredentialNotFound", f"Secret {key}", f"the credential Secret {key} does not exist")
    return credentials.fields(data)


async def check_author(office: Office, chosen_by: Subject | None, reference: str, obj: Object, who: str) -> None:
    """Check that the recorded author still has the right to the credential, before a server is created with it. Raises
    Missing. Where there is no author, an event says so."""
    if not reference:
        return
    if chosen_by is None:
        office.events.warning(obj, author.NO_AUTHOR, author.unknown(who))
        return
    if why := await author.check(office.client, chosen_by, reference, obj.metadata.namespace):
        raise Missing("CredentialForbidden", who, why, _RIGHTS_SECONDS)


async def start(
    desk: Desk,
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
    place = desk.place
    if local and not desk.settings.run_jobs:
        raise Retryable(f"only the job runner of remuda can run Jobs of the driver {order.driver}")
    await _make(desk, SECRETS, manifests.state_secret(place))
    mounted = [manifests.order_secret(place, order, value, format)]
    if fields:
        mounted.append(manifests.credential_secret(place, fields))
    for secret in mounted:
        await _make(desk, SECRETS, secret, renew=True)
    await _make(desk, SERVICE_ACCOUNTS, manifests.account(place))
    await _make(desk, ROLES, manifests.role(place))
    await _make(desk, ROLE_BINDINGS, manifests.role_binding(place))
    job = manifests.job(place, order, desk.settings, credentials=bool(fields), pool=pool, owner=owner, digest=digest)
    if desk.settings.run_jobs and desk.settings.job_key is not None:
        job = marks.sign(desk.settings.job_key, job, manifests.contents(mounted), needs.rights)
    async with START:
        await desk.client.create(JOBS, place.metadata.namespace, job)


async def _make(desk: Desk, target: Target, obj: Json, *, renew: bool = False) -> None:
    """`renew`: one that is there is made like this one; otherwise it is as it should be."""
    client, namespace, name = desk.client, obj["metadata"]["namespace"], obj["metadata"]["name"]
    try:
        async with PREPARE:
            await client.create(target, namespace, obj)
        return
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
    owner = _HEAD.decode(await client.get(target, namespace, name)).metadata.controller
    if owner is None or owner.uid != desk.place.metadata.uid:
        whose = f"{owner.kind} {owner.name}" if owner is not None else "nobody"
        raise Retryable(f"{target.plural} {namespace}/{name} is there already and belongs to {whose}, not to {desk}")
    if renew:
        async with PREPARE:
            await client.update(target, namespace, name, obj)


async def stop(desk: Desk, job: Job) -> None:
    """It is gone when its Pods are: until then the Job is still there, being deleted."""
    propagation: Propagation = "Foreground" if job.finished is None else "Background"
    await _delete(desk, JOBS, job.metadata.name, STOP, uid=job.metadata.uid, propagation=propagation)


async def clear(desk: Desk, *, credential: bool) -> None:
    """Everything but the state Secret; the Job last."""
    for target in (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SECRETS):
        await _delete(desk, target, desk.place.provision, CLEAR)
    if credential:
        await _delete(desk, SECRETS, desk.place.credential, CLEAR)
    if desk.job is not None:
        await stop(desk, desk.job)


async def clear_all(desk: Desk, *, credential: bool) -> None:
    await _delete(desk, SECRETS, desk.place.state, CLEAR)
    await clear(desk, credential=credential)


async def _delete(
    desk: Desk, target: Target, name: str, act: Any, *, uid: str | None = None, propagation: Propagation = ""
) -> None:
    try:
        async with act:
            await desk.client.delete(target, desk.place.metadata.namespace, name, uid=uid, propagation=propagation)
    except StatusError as error:
        if error.code != _NOT_FOUND:
            raise
