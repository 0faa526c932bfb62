"""Creation and removal of a driver's infrastructure for a cluster: one Job at a time, until it matches the order.

The order changes as control plane machines are added and deleted. A running Job is not interrupted; the next one
carries on. A failed order is retried with growing delays, a changed order at once. Removal waits until no Machine of
the cluster is left and is retried for as long as it fails. A user can abandon it with an annotation, and is then told
what was left behind.
"""

from __future__ import annotations

import asyncio

from remuda.jobs.types import Job
from remuda.kube import clock
from remuda.kube.errors import Forbidden
from remuda.kube.wait import Wait
from remuda.providers.infrastructure import status
from remuda.providers.infrastructure.scope import InfrastructureScope, digest
from remuda.providers.shared import drivers, names
from remuda.providers.shared.jobs import budget, cluster_job, job_spec, job_start, manifests, results
from remuda.providers.shared.jobs.budget import RETRY, FailedAttempts
from remuda.providers.shared.jobs.cluster_job import ClusterState
from remuda.providers.shared.jobs.job_start import Missing
from remuda.providers.shared.jobs.results import Result
from remuda.providers.shared.types.machine import CANNOT_CHANGE, NEEDS_JOB_RUNNER, NO_SUCH_DRIVER, OUT_OF_REACH
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import step

PROTECT = step(
    "rkecluster.protect", "adds the finalizer and records the intent, before an RKECluster's infrastructure is created"
)
COUNT = step("rkecluster.count-failure", "writes a failed attempt to create or remove a cluster's infrastructure")
REPORT = step("rkecluster.report", "writes the created infrastructure to an RKECluster's status")
RELEASE = step("rkecluster.release", "removes the finalizer of an RKECluster whose infrastructure is deleted")

FINALIZER = "remuda.dev/cluster-infrastructure"
_LOOK_AGAIN_SECONDS = 15.0


async def ensure(scope: InfrastructureScope) -> Outcome:
    if held := await _held(scope):
        return status.waits(scope.draft.status, held)
    job = scope.job
    if job is not None and (results.removes(job) or job.metadata.deleting):
        return _busy(scope, job, "waiting for the Job of the previous attempt to be deleted")
    if job is not None and job.finished is None:
        return _busy(scope, job, "the cluster infrastructure is being created")
    if job is not None and job.metadata.uid != scope.known.counted_job:
        await _ended(scope, job)
        job = scope.job
    order = await scope.order()
    wanted = digest(order)
    retry = scope.obj.metadata.annotations.get(RETRY, "")
    asked = bool(retry) and retry != scope.known.retried
    if scope.known.applied == wanted and not asked:
        if job is not None:
            await job_start.clear(scope.inputs, credential=bool(scope.wanted.cloud_credential_secret_name))
        await scope.protect()
        status.made(scope.draft.status)
        return DONE
    if scope.known.failed_order == wanted and not asked and (rest := _rest(scope)):
        return rest
    if job is not None:
        await job_start.stop(scope.inputs, job)
        return _busy(scope, job, job_start.PREVIOUS_JOB)
    return await _start(scope, retry)


async def _held(scope: InfrastructureScope) -> Wait | None:
    """Return a Wait for an order that admission should have denied or that cannot be carried out."""
    made_by, wanted = scope.known.driver, scope.obj.spec.infrastructure
    if wanted is None or made_by not in ("", wanted.driver):
        asks = f"asks for {wanted.driver}" if wanted is not None else "no longer asks for any"
        missing = (
            f"driver {made_by} created the cluster infrastructure, and spec.infrastructure {asks}: infrastructure "
            "cannot be changed, only removed together with the cluster"
        )
        return Wait(reason=CANNOT_CHANGE, on=str(scope), missing=missing, then="restore spec.infrastructure")
    try:
        driver = await asyncio.to_thread(drivers.find_cluster, wanted.driver)
    except drivers.NoSuchDriver as error:
        return Wait(reason=NO_SUCH_DRIVER, on=str(scope), missing=str(error), then="change spec.infrastructure.driver")
    if driver.local and not scope.context.settings.run_jobs:
        missing = (
            f"driver {wanted.driver} creates infrastructure where Remuda's job runner runs, and this manager runs none"
        )
        return Wait(reason=NEEDS_JOB_RUNNER, on=str(scope), missing=missing)
    if why := scope.context.settings.out_of_reach(wanted.driver, driver.own_loopback):
        return Wait(reason=OUT_OF_REACH, on=str(scope), missing=why)
    return None


def _rest(scope: InfrastructureScope) -> Outcome | None:
    known, rules = scope.known, scope.context.settings.rules
    done = FailedAttempts(
        failures=known.failures,
        last_failure=clock.parse(known.last_failure_time) if known.last_failure_time else 0.0,
        hopeless=known.hopeless,
    )
    if stall := budget.stalled(rules, done):
        status.stalled(scope.draft.status, known, stall)
        return Blocked("Stalled", str(scope), stall.message)
    left = budget.rest(rules, done, clock.time(), scope.obj.metadata.uid)
    return Blocked("BackingOff", str(scope), known.failure_message, left) if left > 0 else None


async def _start(scope: InfrastructureScope, retry: str) -> Outcome:
    try:
        if not scope.known.applied:  # an existing balancer follows its backends, whatever permissions have changed
            await scope.check_author()
        fields = await scope.credential_fields()
    except Missing as missing:
        wait = Wait(reason=missing.reason, on=missing.on, missing=str(missing))
        return status.waits(scope.draft.status, wait, missing.check_after)
    draft, name = scope.draft, scope.place.provision
    draft.add_finalizer(FINALIZER)
    draft.set_annotation(job_spec.IDENTITY, job_spec.identity(scope.obj.metadata))
    draft.status.setdefault("infrastructure", {}).update(driver=scope.wanted.driver, jobName=name)
    if retry:
        draft.status["infrastructure"]["retried"] = retry
    status.making(draft.status, scope.known, str(scope), scope.place.job_key, scope.context.settings.rules)
    # Before the Job exists: an RKECluster that is deleted in between would leave infrastructure that nobody removes.
    await scope.save(PROTECT)
    await scope.protect_credential()
    order = await scope.order()
    driver = await asyncio.to_thread(drivers.find_cluster, order.driver)
    await job_start.start(scope.inputs, order, fields, local=driver.local, needs=driver.needs, digest=digest(order))
    return Blocked(
        status.MAKING, f"Job {scope.obj.metadata.namespace}/{name}", "the cluster infrastructure is being created"
    )


async def _ended(scope: InfrastructureScope, job: Job) -> None:
    ended = await scope.context.result(job) or Result(ok=False)
    known = await _state(scope)
    if ended.ok and known.phase != "created":
        ended = Result(ok=False, message="the Job succeeded, but the cluster-state Secret records no infrastructure")
    order = job.metadata.annotations.get(manifests.DIGEST, "")
    if not ended.ok:
        return await _failed(scope, job, ended, order)
    draft = scope.draft
    status.applied(draft.status, known, order, job.metadata.uid)
    given = scope.obj.spec.control_plane_endpoint
    if known.endpoint is not None and (given is None or not given.valid):
        draft.spec["controlPlaneEndpoint"] = {"host": known.endpoint.host, "port": known.endpoint.port}
    await scope.save(REPORT)


async def _failed(scope: InfrastructureScope, job: Job, ended: Result, order: str) -> None:
    known = scope.known
    failures = known.failures + 1 if known.failed_order == order else 1
    scope.context.events.warning(scope.obj, status.FAILED, f"attempt {failures} failed: {ended.message}")
    status.failed(scope.draft.status, ended, job.metadata.uid, order, failures, clock.now())
    await scope.save(COUNT)


async def _state(scope: InfrastructureScope) -> ClusterState:
    data = await scope.context.secret(scope.obj.metadata.namespace, scope.place.state)
    try:
        return cluster_job.read(data or {})
    except ValueError:
        return ClusterState()


def _busy(scope: InfrastructureScope, job: Job, message: str) -> Outcome:
    """Wait for a Job. The status was written when the Job was created and does not change until it ends."""
    return Blocked("WaitingForJob", f"Job {job.key}", message)


# ---- the end ---------------------------------------------------------------------------------------------------------


async def remove(scope: InfrastructureScope) -> Outcome:
    if FINALIZER not in scope.obj.metadata.finalizers:
        return DONE
    if machines := scope.machines:
        shown = ", ".join(machine.metadata.name for machine in machines[:3])
        more = f" and {len(machines) - 3} more" if len(machines) > 3 else ""
        missing = f"waiting for the cluster's Machines to be deleted: {shown}{more}"
        wait = Wait(
            reason="WaitingForMachines",
            on=str(scope),
            missing=missing,
            then="the driver removes the infrastructure then",
        )
        return status.waits(scope.draft.status, wait)
    job = scope.job
    if job is not None and not results.removes(job):
        if not job.metadata.deleting:
            await job_start.stop(scope.inputs, job)
        return _busy(scope, job, "stopping the Job that creates the infrastructure; the removal starts then")
    if job is not None and (job.metadata.deleting or job.finished is None):
        return _busy(scope, job, "the cluster infrastructure is being removed")
    if job is not None and job.metadata.uid != scope.known.counted_job:
        ended = await scope.context.result(job) or Result(ok=False)
        if ended.ok:
            return await _release(scope)
        await _failed(scope, job, ended, status.REMOVAL)
    return await _remove_again(scope, job)


async def _remove_again(scope: InfrastructureScope, job: Job | None) -> Outcome:
    known, metadata = scope.known, scope.obj.metadata
    if known.failed_order == status.REMOVAL:
        if metadata.annotations.get(names.ABANDON) == "true":
            return await _abandon(scope)
        retry = metadata.annotations.get(RETRY, "")
        done = FailedAttempts(failures=known.failures, last_failure=clock.parse(known.last_failure_time or clock.now()))
        left = budget.rest(scope.context.settings.rules, done, clock.time(), metadata.uid)
        if left > 0 and retry in ("", known.retried):
            return Blocked(status.FAILED, str(scope), known.failure_message, left)
        scope.draft.status["infrastructure"]["retried"] = retry
    if job is not None:
        await job_start.stop(scope.inputs, job)
        return _busy(scope, job, job_start.PREVIOUS_JOB)
    try:
        driver = await asyncio.to_thread(drivers.find_cluster, scope.wanted.driver)
        inputs = await job_start.inputs_for_removal(scope.context, scope.inputs)
        await job_start.start(
            inputs, await scope.order(), await scope.credential_fields(), local=driver.local, needs=driver.needs
        )
    except (Missing, drivers.NoSuchDriver) as error:
        return await _cannot(scope, str(error))
    except Forbidden as error:  # its namespace is being deleted, and this manager may not work in another one
        return await _cannot(scope, f"cannot create a Job: {error.message}")
    status.removing(scope.draft.status, str(scope), inputs.place.job_key)
    return Blocked(status.REMOVING, f"Job {inputs.place.job_key}", "the cluster infrastructure is being removed")


async def _cannot(scope: InfrastructureScope, why: str) -> Outcome:
    """Report why the removal cannot be attempted."""
    if scope.obj.metadata.annotations.get(names.ABANDON) == "true":
        return await _abandon(scope)
    wait = Wait(
        reason=status.FAILED, on=str(scope), missing=f"cannot remove the infrastructure: {why}", then=status.HINT
    )
    return status.waits(scope.draft.status, wait, _LOOK_AGAIN_SECONDS)


async def _abandon(scope: InfrastructureScope) -> Outcome:
    known = scope.known
    text = f"abandoned and possibly still running: {known.id or scope.obj.metadata.name}, driver {known.driver}"
    scope.context.events.warning(scope.obj, "InfrastructureAbandoned", f"{text}; last error: {known.failure_message}")
    return await _release(scope)


async def _release(scope: InfrastructureScope) -> Outcome:
    # Before the finalizer goes: objects in the manager's namespace have no owner reference that would delete them.
    await job_start.clear_all(scope.context, scope.inputs, credential=bool(scope.wanted.cloud_credential_secret_name))
    scope.draft.remove_finalizer(FINALIZER)
    await scope.save(RELEASE)
    return DONE
