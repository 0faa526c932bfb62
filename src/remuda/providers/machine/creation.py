"""Creation of a machine's server: preconditions, one Job at a time within the failure budget, and its result.

A failed attempt is repeated on the same machine: `create` finds what the previous attempt has made, so nothing is
thrown away and nothing is made twice. The Job of a failed attempt stays, with its log, until the next one is created.
Its end is counted once, by the Job's uid: in the pool first, then in the status.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.capi.types import Machine, Reference
from remuda.jobs.types import Job
from remuda.kube import clock
from remuda.kube.conditions import find
from remuda.kube.objects import Key
from remuda.providers.machine import status
from remuda.providers.machine.scope import FINALIZER, InfraMachineScope
from remuda.providers.shared import names
from remuda.providers.shared.jobs import budget, job_spec, job_start
from remuda.providers.shared.jobs.budget import Failure, RetryLater, Stall
from remuda.providers.shared.jobs.job_start import Missing
from remuda.providers.shared.jobs.results import Result
from remuda.providers.shared.jobs.state import State
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.machine import (
    CREATE_ERROR,
    CREATE_JOB,
    FOREIGN_BOOTSTRAP_DATA,
    NEEDS_JOB_RUNNER,
    OUT_OF_REACH,
)
from remuda.runtime.outcome import DONE, Blocked, Outcome, Retryable
from remuda.runtime.steps import step

PROTECT = step(
    "drivermachine.protect", "adds the finalizer and records the intent, before a machine's server is requested"
)
COUNT = step("drivermachine.count-failure", "writes a failed creation attempt to the machine's status")
REPORT = step("drivermachine.report-server", "writes the created server to the machine's status")
RETRY = step("drivermachine.retry", "resets a machine's failure budget because a user requested a retry")

_SCRIPT = b"script"  # the format of bootstrap data


async def advance(scope: InfraMachineScope) -> Outcome:
    if scope.made:
        return await _settle(scope)
    job = scope.job
    if job is not None and job.metadata.deleting:
        return _waits(
            scope, Blocked("WaitingForJob", _named(job), "waiting for the Job of the previous attempt to be deleted")
        )
    if job is not None and job.finished is None:
        _creates(scope, job.metadata.name)
        return Blocked(status.CREATING, _named(job), "the server is being created")
    if job is not None and job.metadata.uid != scope.machine.status.counted_job:
        ended = await scope.world.result(job)
        if ended is not None and ended.ok:
            return await _succeed(scope, job)
        await _fail(scope, job, ended or Result(ok=False))
    return await _attempt(scope, job)


# ---- asking for a server -------------------------------------------------------------------------------------------


async def _attempt(scope: InfraMachineScope, job: Job | None) -> Outcome:
    owner = scope.owner
    if owner is None:
        return _waits(
            scope,
            Blocked("WaitingForOwner", str(scope), "waiting for the Machine controller to set the owner reference"),
        )
    if wait := _not_yet(scope, owner):
        return _waits(scope, wait)
    if scope.machine.spec.provider_id and find(scope.machine.status.conditions, CREATE_JOB) is None:
        known = await _state(scope)
        if _exists(known):  # objects that were moved here come without their status
            return await _publish_server(scope, owner, known)
    if scope.machine.status.failures and (retry := status.retry_wanted(scope.machine)):
        await _begin_anew(scope, owner, retry)
    pools, rules = scope.world.pools, scope.world.settings.rules
    if pools.look(scope.pool).failures < rules.pool_failures:
        return await _try(scope, owner, job)
    # A failing pool tries one machine at a time. Without the lock, two machines could each see that no other tries.
    async with pools.lock(scope.pool):
        return await _try(scope, owner, job)


def _not_yet(scope: InfraMachineScope, owner: Machine) -> Blocked | None:
    namespace, cluster = owner.metadata.namespace, scope.cluster
    if owner.metadata.deleting:
        return Blocked("MachineIsDeleting", f"Machine {owner.key}", f"Machine {owner.key} is being deleted")
    if cluster is None:
        place = f"Cluster {Key(namespace, scope.cluster_name)}"
        return Blocked("WaitingForCluster", place, f"{place} does not exist")
    if not cluster.status.initialization.infrastructure_provisioned:
        message = f"waiting for the infrastructure of Cluster {cluster.key} to be provisioned"
        return Blocked("WaitingForInfrastructure", f"Cluster {cluster.key}", message)
    if owner.spec.bootstrap.data_secret_name is None:
        config = owner.spec.bootstrap.config_ref
        on = f"{config.kind} {namespace}/{config.name}" if config is not None else f"Machine {owner.key}"
        return Blocked(
            "WaitingForBootstrapData", on, f"waiting for {on} to generate the bootstrap data of Machine {owner.key}"
        )
    if scope.driver.local and not scope.world.settings.run_jobs:
        message = (
            f"driver {scope.driver.name} creates servers where Remuda's job runner runs, and this manager runs none"
        )
        return Blocked(NEEDS_JOB_RUNNER, f"NodeDriver {scope.driver.name}", message)
    if why := scope.world.settings.out_of_reach(scope.driver.name, scope.driver.own_loopback):
        return Blocked(OUT_OF_REACH, f"NodeDriver {scope.driver.name}", why)
    return None


async def _begin_anew(scope: InfraMachineScope, owner: Machine, retry: str) -> None:
    """Reset the failures of machine and pool: a user who requests a retry has fixed something for the whole pool."""
    await scope.world.pools.succeeded(scope.pool, owner)
    status.begin_anew(scope.draft.status, retry)
    await scope.save(RETRY)


async def _try(scope: InfraMachineScope, owner: Machine, job: Job | None) -> Outcome:
    world, machine = scope.world, scope.machine
    trying = [name for name in world.pools.trying(scope.pool) if name != machine.metadata.name]
    pool = world.pools.look(scope.pool)
    verdict = budget.judge(
        world.settings.rules, status.attempts(machine), pool, trying, clock.time(), machine.metadata.uid
    )
    if isinstance(verdict, Stall):
        return _stall(scope, verdict)
    if isinstance(verdict, RetryLater):
        last = status.last_error(machine.status)
        reason = CREATE_ERROR if last else verdict.reason
        status.waits(scope.draft.status, reason, verdict.message + last)
        return Blocked(verdict.reason, str(scope), verdict.message, verdict.seconds)
    if job is not None:
        # All Jobs of a machine have the same name: the next one can be created when this one is gone.
        await job_start.stop(scope.inputs, job)
        return Blocked(
            "WaitingForJob",
            _named(job),
            job_start.PREVIOUS_JOB,
        )
    try:
        return await _start(scope, owner)
    except Missing as missing:
        return _waits(scope, Blocked(missing.reason, missing.on, str(missing), missing.check_after))


async def _start(scope: InfraMachineScope, owner: Machine) -> Outcome:
    namespace, secret = owner.metadata.namespace, owner.spec.bootstrap.data_secret_name or ""
    config = owner.spec.bootstrap.config_ref
    if config is not None and _is_ours(config) and secret != names.bootstrap_secret(config.name):
        # A user who may write the status of an RKEBootstrap could have any Secret put onto a server.
        on = f"RKEBootstrap {namespace}/{config.name}"
        raise Missing(
            FOREIGN_BOOTSTRAP_DATA, on, f"Machine {owner.key} refers to Secret {secret}, which {on} did not create"
        )
    bootstrap = await scope.world.secret(namespace, secret)
    if bootstrap is None or not bootstrap.get("value"):
        on = f"Secret {namespace}/{secret}"
        raise Missing("BootstrapDataNotFound", on, f"{on} with the bootstrap data is missing or empty")
    if stall := _bad_format(scope, f"Secret {namespace}/{secret}", bootstrap):
        return _stall(scope, stall)
    # Admission has checked these rights too, but they may have been revoked since then.
    await scope.check_author()
    fields = await scope.credential_fields()
    name = names.provision(scope.machine.metadata.name)
    # Write the finalizer and the intent before the Job exists: a machine that is deleted in between would leave a
    # server that nobody removes.
    await _protect(scope, owner, name)
    # The removal needs the credential too, so it must be protected before anything is created with it.
    await scope.protect_credential()
    order = await scope.order("create")
    await job_start.start(
        scope.inputs,
        order,
        fields,
        bootstrap["value"],
        _SCRIPT,
        local=scope.driver.local,
        needs=scope.driver.needs,
        pool=scope.pool.name,
        owner=owner.metadata.name,
    )
    return Blocked(status.CREATING, f"Job {namespace}/{name}", "the server is being created")


def _creates(scope: InfraMachineScope, job: str) -> None:
    kind, rules = scope.driver.kind.name, scope.world.settings.rules
    status.creating(scope.draft.status, scope.machine.status, kind, scope.machine.key, job, rules)


def _stall(scope: InfraMachineScope, stall: Stall) -> Outcome:
    status.stalled(scope.draft.status, scope.machine.status, stall)
    return Blocked("Stalled", str(scope), stall.message)


def _bad_format(scope: InfraMachineScope, secret: str, bootstrap: Mapping[str, bytes]) -> Stall | None:
    """Return a Stall if the bootstrap data is no script: a cloud-config run as a script would fail every time."""
    known = bootstrap.get("format", b"").decode("utf-8", "replace")
    if known == _SCRIPT.decode() or (not known and bootstrap["value"].startswith(b"#!")):
        return None
    message = (
        f"{secret} has bootstrap data in format {known or 'cloud-config'}, but driver {scope.driver.name} needs a "
        "script: use an RKEBootstrap, or a Secret with format script"
    )
    return Stall(budget.BAD_BOOTSTRAP_FORMAT, message)


async def _protect(scope: InfraMachineScope, owner: Machine, job: str) -> None:
    draft = scope.draft
    draft.add_finalizer(FINALIZER)
    draft.set_label(names.CLUSTER_NAME, owner.spec.cluster_name)
    draft.set_label(names.CAPI_MACHINE_NAME, names.shorten(owner.metadata.name, 63))
    draft.set_annotation(job_spec.IDENTITY, job_spec.identity(scope.machine.metadata))
    credential = scope.machine.spec.common.cloud_credential_secret_name
    if credential:
        draft.status["cloudCredentialSecretName"] = credential
    for name, key in (("driverUrl", "url"), ("driverHash", "checksum")):
        if said := scope.driver.program.get(key):
            draft.status[name] = said
    if retry := status.retry_wanted(scope.machine):
        draft.status["retried"] = retry  # this attempt fulfils the request
    status.not_paused(draft.status)
    _creates(scope, job)
    await scope.save(PROTECT)


# ---- what came of it -----------------------------------------------------------------------------------------------


async def _fail(scope: InfraMachineScope, job: Job, ended: Result) -> None:
    machine, now = scope.machine, clock.now()
    failure = Failure(
        time=now,
        machine=machine.metadata.name,
        message=ended.message,
        attempt=machine.status.failures + 1,
        job=job.metadata.uid,
    )
    if scope.owner is not None:
        # The pool comes before the status. After a crash in between, this runs again, and the pool ignores a Job
        # that it has counted.
        await scope.world.pools.failed(scope.pool, scope.owner, failure)
    scope.world.events.warning(machine, CREATE_ERROR, f"attempt {failure.attempt} failed: {ended.message}")
    rules = scope.world.settings.rules
    status.create_failed(
        scope.draft.status, machine.status, job.metadata.uid, ended.message, ended.hopeless, now, rules
    )
    await scope.save(COUNT)


async def _succeed(scope: InfraMachineScope, job: Job) -> Outcome:
    known = await _state(scope)
    if not _exists(known):
        said = "the Job succeeded, but the machine-state Secret records no server"
        await _fail(scope, job, Result(ok=False, message=said))
        return await _attempt(scope, job)
    if scope.owner is not None:
        await scope.world.pools.succeeded(scope.pool, scope.owner)
    return await _publish_server(scope, scope.owner, known)


async def _state(scope: InfraMachineScope) -> State:
    try:
        return await scope.world.state(scope.machine) or State()
    except ValueError as error:
        raise Retryable(f"Secret {names.state_secret(scope.machine.metadata.name)}: {error}") from None


def _exists(known: State) -> bool:
    """Return whether the Job has finished its work on the server; over SSH, the script must have succeeded."""
    return known.phase == "bootstrapped" or (known.phase == "created" and known.by_user_data)


async def _publish_server(scope: InfraMachineScope, owner: Machine | None, known: State) -> Outcome:
    draft = scope.draft
    draft.add_finalizer(FINALIZER)
    status.not_paused(draft.status)
    status.created(draft.status, draft.spec, known, scope.driver.name)
    # A server reports nothing about its user data: only the call of its agent proves that the script has run.
    ready = not known.by_user_data or scope.agent_connected in (None, True)
    if ready:
        status.provisioned(draft.status)
    elif owner is not None and owner.spec.bootstrap.config_ref is not None:
        config = owner.spec.bootstrap.config_ref.name
        status.waits_for_agent(draft.status, draft.spec["providerID"], config)
    await scope.save(REPORT)
    return await _settle(scope)


async def _settle(scope: InfraMachineScope) -> Outcome:
    """Report the server as provisioned once its agent has connected, and delete the objects that the Job needed."""
    if scope.job is not None:
        await job_start.clear(scope.inputs, credential=bool(scope.credential))
    machine = scope.machine
    if machine.status.initialization.provisioned:
        return DONE
    made = find(machine.status.conditions, CREATE_JOB)
    if made is None or made.reason != status.CREATED or scope.agent_connected in (None, True):
        status.provisioned(scope.draft.status)
        await scope.save(REPORT)
        return DONE
    on = f"RKEBootstrap {machine.metadata.namespace}/{_config(scope)}"
    status.waits_for_agent(scope.draft.status, machine.spec.provider_id, _config(scope))
    return Blocked(
        status.WAITING_FOR_AGENT, on, f"server {machine.spec.provider_id} is running; waiting for its agent to connect"
    )


def _config(scope: InfraMachineScope) -> str:
    ref = scope.owner.spec.bootstrap.config_ref if scope.owner is not None else None
    return ref.name if ref is not None else ""


def _waits(scope: InfraMachineScope, blocked: Blocked) -> Blocked:
    status.waits(scope.draft.status, blocked.reason, blocked.message)
    return blocked


def _is_ours(config: Reference) -> bool:
    return (config.api_group, config.kind) == (RKE_BOOTSTRAP.group, RKE_BOOTSTRAP.name)


def _named(job: Job) -> str:
    return f"Job {job.key}"
