"""Starting a Job for a machine, and clearing away what it needed.

What a Job needs is written before the Job and goes before it: a Job that is there is the mark that there is something
to clear away. The machine-state Secret is the exception: it stays for as long as the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.jobs.types import Job
from remuda.kube.client import Propagation, Target
from remuda.kube.core import JOBS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Kind, Object
from remuda.providers import names
from remuda.providers.machine import credentials, manifests
from remuda.providers.machine.scope import Scope
from remuda.providers.machine.spi import Order
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

PREPARE = step("drivermachine.prepare-job", "writes a Secret or a right that a machine's Job needs")
START = step("drivermachine.start-job", "creates the Job that makes or removes a server")
STOP = step("drivermachine.delete-job", "deletes a Job of a machine, which ends it if it still runs")
CLEAR = step("drivermachine.clear", "deletes a Secret or a right that no Job of the machine needs any more")

Json = dict[str, Any]

_NOT_FOUND = 404
_HEAD = Kind("", "", "", Object)


class Missing(Exception):
    """Something the Job would need is not there; the text is for users."""

    def __init__(self, reason: str, on: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.on = on


async def credential_fields(scope: Scope) -> Mapping[str, bytes]:
    """Read anew for each Job, so that credentials that were changed are used. Raises Missing."""
    reference = scope.machine.spec.common.cloud_credential_secret_name
    if not reference:
        return {}
    try:
        key = credentials.place(reference, scope.machine.metadata.namespace)
    except credentials.BadReference as error:
        raise Missing("BadCredentialReference", str(scope), str(error)) from None
    data = await scope.world.secret(*key)
    if data is None:
        raise Missing("CredentialNotFound", f"Secret {key}", f"the credential Secret {key} does not exist")
    return credentials.fields(data)


async def start(
    scope: Scope, order: Order, fields: Mapping[str, bytes], value: bytes = b"", format: bytes = b""
) -> None:
    place = scope.place
    if scope.driver.local and not scope.world.settings.run_jobs:
        raise Retryable(f"only the job runner of remuda can run Jobs of the driver {scope.driver.name}")
    await _make(scope, SECRETS, manifests.state_secret(place))
    await _make(scope, SECRETS, manifests.order_secret(place, order, value, format), renew=True)
    if fields:
        await _make(scope, SECRETS, manifests.credential_secret(place, fields), renew=True)
    await _make(scope, SERVICE_ACCOUNTS, manifests.account(place))
    await _make(scope, ROLES, manifests.role(place))
    await _make(scope, ROLE_BINDINGS, manifests.role_binding(place))
    job = manifests.job(
        place,
        order,
        scope.world.settings,
        pool=scope.pool.name,
        owner=scope.owner.metadata.name if scope.owner is not None else "",
        credentials=bool(fields),
    )
    async with START:
        await scope.world.client.create(JOBS, place.metadata.namespace, job)


async def _make(scope: Scope, target: Target, obj: Json, *, renew: bool = False) -> None:
    """`renew`: one that is there is made like this one; otherwise it is as it should be."""
    client, namespace, name = scope.world.client, obj["metadata"]["namespace"], obj["metadata"]["name"]
    try:
        async with PREPARE:
            await client.create(target, namespace, obj)
        return
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
    owner = _HEAD.decode(await client.get(target, namespace, name)).metadata.controller
    if owner is None or owner.uid != scope.machine.metadata.uid:
        whose = f"{owner.kind} {owner.name}" if owner is not None else "nobody"
        raise Retryable(f"{target.plural} {namespace}/{name} is there already and belongs to {whose}, not to {scope}")
    if renew:
        async with PREPARE:
            await client.update(target, namespace, name, obj)


async def stop(scope: Scope, job: Job) -> None:
    """It is gone when its Pods are: until then the Job is still there, being deleted."""
    propagation: Propagation = "Foreground" if job.finished is None else "Background"
    await _delete(scope, JOBS, job.metadata.name, STOP, uid=job.metadata.uid, propagation=propagation)


async def clear(scope: Scope) -> None:
    """Everything but the machine-state Secret; the Job last."""
    name = scope.machine.metadata.name
    for target in (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SECRETS):
        await _delete(scope, target, names.provision(name), CLEAR)
    if scope.machine.spec.common.cloud_credential_secret_name:
        await _delete(scope, SECRETS, names.credential_secret(name), CLEAR)
    if (job := scope.job) is not None:
        await stop(scope, job)


async def clear_all(scope: Scope) -> None:
    await _delete(scope, SECRETS, names.state_secret(scope.machine.metadata.name), CLEAR)
    await clear(scope)


async def _delete(
    scope: Scope, target: Target, name: str, act: Any, *, uid: str | None = None, propagation: Propagation = ""
) -> None:
    try:
        async with act:
            await scope.world.client.delete(
                target, scope.machine.metadata.namespace, name, uid=uid, propagation=propagation
            )
    except StatusError as error:
        if error.code != _NOT_FOUND:
            raise
