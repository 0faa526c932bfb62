"""Removal of a machine: it can finish from every state, and never leaves a server behind without reporting it.

A running create Job is stopped first: two Jobs never work on one server. Then a Job removes what exists in the
infrastructure, complete or partial. It is retried for as long as it fails; a user can abandon the server with an
annotation, and is told which one that was. Nothing here waits for the Machine, the Cluster or the bootstrap data: they
may already be deleted. So may the namespace: then the Job runs in the manager's own (`protection`).
"""

from __future__ import annotations

from remuda.jobs.types import Job
from remuda.kube import clock
from remuda.kube.conditions import find
from remuda.kube.errors import Forbidden
from remuda.providers.machine import status
from remuda.providers.machine.scope import FINALIZER, InfraMachineScope
from remuda.providers.shared import names
from remuda.providers.shared.jobs import budget, job_spec, job_start, kept_log, results
from remuda.providers.shared.jobs.job_start import Missing
from remuda.providers.shared.jobs.results import Result
from remuda.providers.shared.jobs.state import State
from remuda.providers.shared.types.machine import DELETE_ERROR, DELETE_JOB
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import step

BEGIN = step("drivermachine.begin-removal", "records that the removal of a machine's server begins")
COUNT = step("drivermachine.count-failed-removal", "writes a failed removal attempt to the machine's status")
RETRY = step("drivermachine.retry-removal", "retries a failed removal at once because a user requested it")
RELEASE = step("drivermachine.release", "removes the finalizer of a machine whose server is deleted or abandoned")

ABANDONED = "ServerAbandoned"
_HINT = f'To abandon the server and delete this object anyway, annotate it with {names.ABANDON}="true"'
_LOOK_AGAIN_SECONDS = 15.0


async def advance(scope: InfraMachineScope) -> Outcome:
    if FINALIZER not in scope.machine.metadata.finalizers:
        return DONE
    job = scope.job
    if not scope.asked:
        return await _release(scope)
    if job is not None and not results.removes(job):
        return await _end_creation(scope, job)
    if find(scope.machine.status.conditions, DELETE_JOB) is None:
        status.begins_to_go(scope.draft.status)
        await scope.save(BEGIN)
    if job is not None and job.metadata.deleting:
        return Blocked("WaitingForJob", _named(job), "waiting for the Job of the previous attempt to be deleted")
    if job is not None and job.finished is None:
        _removing(scope, job.metadata.name)
        return Blocked(status.REMOVING, _named(job), "the server is being removed")
    if job is not None and job.metadata.uid != scope.machine.status.counted_job:
        ended = await scope.world.result(job)
        if ended is not None and ended.ok:
            return await _release(scope)
        await _fail(scope, job, ended or Result(ok=False))
    return await _attempt(scope, job)


async def _end_creation(scope: InfraMachineScope, job: Job) -> Outcome:
    """Stop the create Job. It may be requesting the server: what to remove is known only once it has ended."""
    status.stopping(scope.draft.status, job.metadata.name)
    if not job.metadata.deleting:
        await job_start.stop(scope.inputs, job)
    return Blocked("WaitingForJob", _named(job), "stopping the Job that creates the server; the removal starts then")


async def _attempt(scope: InfraMachineScope, job: Job | None) -> Outcome:
    world, machine = scope.world, scope.machine
    # The annotation counts only after a failed attempt: a server that can be removed is not left behind.
    if machine.status.failures and _abandon_wanted(scope):
        return await _abandon(scope)
    if machine.status.failures and (retry := status.retry_wanted(machine)):
        status.begin_anew(scope.draft.status, retry, DELETE_JOB)
        await scope.save(RETRY)
        machine = scope.machine
    done = status.attempts(machine)
    rest = budget.rest(world.settings.rules, done, clock.time(), machine.metadata.uid)
    if rest > 0:
        return Blocked(DELETE_ERROR, str(scope), machine.status.failure_message, rest)
    if job is not None:
        await job_start.stop(scope.inputs, job)
        return Blocked(
            "WaitingForJob",
            _named(job),
            job_start.PREVIOUS_JOB,
        )
    try:
        return await _start(scope)
    except Missing as missing:
        return await _cannot(scope, str(missing), missing.on, missing.reason)
    except Forbidden as error:  # its namespace is being deleted, and this manager may not work in another one
        why = f"cannot create a Job: {error.message}"
        return await _cannot(scope, why, f"Namespace {machine.metadata.namespace}", DELETE_ERROR)


async def _start(scope: InfraMachineScope) -> Outcome:
    fields = await scope.credential_fields()
    order = await scope.order("remove")
    owner = scope.owner.metadata.name if scope.owner is not None else ""
    inputs = await job_start.inputs_for_removal(scope.world, scope.inputs)
    await job_start.start(
        inputs, order, fields, local=scope.driver.local, needs=scope.driver.needs, pool=scope.pool.name, owner=owner
    )
    _removing(scope, inputs.place.provision)
    return Blocked(status.REMOVING, f"Job {inputs.place.job_key}", "the server is being removed")


def _removing(scope: InfraMachineScope, job: str) -> None:
    status.removing(scope.draft.status, scope.driver.kind.name, scope.machine.key, job)


async def _cannot(scope: InfraMachineScope, why: str, on: str, reason: str) -> Outcome:
    """Report why the removal cannot be attempted."""
    if _abandon_wanted(scope):
        return await _abandon(scope)
    status.cannot_remove(scope.draft.status, f"cannot remove the server: {why}", _HINT, reason)
    return Blocked(DELETE_ERROR, on, why, _LOOK_AGAIN_SECONDS)


async def _fail(scope: InfraMachineScope, job: Job, ended: Result) -> None:
    machine = scope.machine
    scope.world.events.warning(machine, DELETE_ERROR, ended.message)
    status.remove_failed(
        scope.draft.status,
        machine.status,
        job.metadata.uid,
        ended.message,
        ended.hopeless,
        clock.now(),
        f"The controller retries. {_HINT}",
    )
    await scope.save(COUNT)


def _abandon_wanted(scope: InfraMachineScope) -> bool:
    return scope.machine.metadata.annotations.get(names.ABANDON) == "true"


async def _abandon(scope: InfraMachineScope) -> Outcome:
    try:
        known = await scope.world.state(scope.machine) or State()
    except ValueError:
        known = State()
    text = (
        f"abandoned and possibly still running: server {job_spec.server_name(scope.machine.metadata.name)}"
        f"{f', id {known.id}' if known.id else ''}{_named_id(scope, known)}, driver {scope.driver.name}; last error: "
        f"{scope.machine.status.failure_message}"
    )
    scope.world.events.warning(scope.machine, ABANDONED, text)
    if scope.owner is not None:
        scope.world.events.warning(scope.owner, ABANDONED, text)
    return await _release(scope)


def _named_id(scope: InfraMachineScope, known: State) -> str:
    found = known.provider_id or scope.machine.spec.provider_id
    return f", providerID {found}" if found else ""


async def _keep_log(scope: InfraMachineScope) -> None:
    """Keep the logs of the machine's Jobs, unless the whole cluster is being deleted."""
    cluster, key = scope.cluster, scope.machine.key
    if cluster is None or cluster.metadata.deleting or await scope.world.terminating(key.namespace):
        return
    data = await scope.world.secret(key.namespace, names.state_secret(key.name))
    await kept_log.keep(scope.world.client, cluster, key, data or {}, job_start.CLEAR)


async def _release(scope: InfraMachineScope) -> Outcome:
    await _keep_log(scope)
    # Before the finalizer goes: objects in the manager's namespace have no owner reference that would delete them.
    await job_start.clear_all(scope.world, scope.inputs, credential=bool(scope.credential))
    scope.draft.remove_finalizer(FINALIZER)
    await scope.save(RELEASE)
    return DONE


def _named(job: Job) -> str:
    return f"Job {job.key}"
