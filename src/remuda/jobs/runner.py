"""The job runner: a controller that runs the programs of Jobs with `spec.managedBy` on this machine.

It replaces kube-controller-manager for the Jobs and the kubelet for their Pods: it creates a Pod per attempt, and
writes the status of the Pods and Jobs. Invariants:

- the programs of a Job run one at a time, even if a Job was deleted and created again with the same name;
- a program dies with the runner. A running Pod without a program of this runner has failed, and is retried;
- it runs only Jobs that the manager has signed (`marks`), with the contents of their volumes at that time;
- decisions depend only on Jobs and Pods, not on memory, so a restart at any point continues from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.jobs import FOLLOWS, MANAGED_BY, decisions, marks, pods
from remuda.jobs.attempts import JobAttempts
from remuda.jobs.children import Child, Children, ConcurrencyLimit
from remuda.jobs.decisions import Attempt, AwaitEvent, Finish, Suspend
from remuda.jobs.launcher import Launcher
from remuda.jobs.marks import BadMark, JobKey, Mark
from remuda.jobs.pod_inputs import NotReady, NotRunnable
from remuda.jobs.pod_log import parse, stream
from remuda.jobs.processes import Processes
from remuda.jobs.types import JOB, POD, Job, Pod
from remuda.kube import clock
from remuda.kube.errors import bad_request, ignore_not_found
from remuda.kube.objects import Key
from remuda.runtime import tracing
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable
from remuda.runtime.steps import step

CONTROLLER = "job-runner"

SAVE_JOB = step("jobrunner.save-job", "writes the status of a Job")
DELETE_POD = step("jobrunner.delete-pod", "deletes the Pod of a suspended Job")
DELETE_JOB = step("jobrunner.delete-job", "deletes a finished Job whose TTL has passed")

_OF_JOB = "job"
_FOLLOW_SECONDS = 1.0  # between two checks whether the program of the preceding Job has ended
_MISSING_SECONDS = 5.0  # between two checks for a missing Secret


class JobRunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    directory: Path  # private to the runner: inputs and logs of Jobs
    hosts: Path  # directory of the servers of drivers that create them on this machine
    server_url: str  # URL at which a Job reaches the API server
    ca_pem: bytes  # CA that verifies the API server
    key: JobKey  # key with which the manager signs its Jobs
    concurrency: int = 8


class JobRunner:
    """Job runner. `launcher`: another one than processes of this machine."""

    def __init__(self, manager: Manager, settings: JobRunnerSettings, launcher: Launcher | None = None) -> None:
        self._manager = manager
        self._client = manager.client
        self._settings = settings
        self._launcher: Launcher = launcher or Processes(settings.directory, settings.hosts)
        self._jobs = manager.caches.of(JOB)
        self._pods = manager.caches.of(POD, label_selector=pods.LABEL)
        self._pods.index(_OF_JOB, _owner)
        self._controller = manager.controller(
            CONTROLLER, JOB, self.reconcile, concurrency=max(10, settings.concurrency)
        )
        self._controller.watch(self._pods, self._job_of, "pods")
        self._attempts = JobAttempts(self._client, self._pods, self._launcher, settings.server_url, settings.ca_pem)
        self._slots = ConcurrencyLimit(settings.concurrency, self._controller.enqueue)
        self._children = Children(self._ended)
        self._pods.listen(self._gone)
        manager.at_start(self._sweep)
        manager.at_end(self._children.close)

    # -- interface for other components

    def log_source(self, pod: Mapping[str, Any], query: Mapping[str, str]) -> AsyncIterator[bytes] | None:
        """Return a `LogSource` for the engine's pods/log."""
        spec = pod.get("spec") or {}
        if spec.get("schedulerName") != MANAGED_BY:
            return None
        metadata = pod["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        container = spec["containers"][0]["name"]
        found = self._launcher.log(uid)
        if found is None:
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
        key = Key(metadata.get("namespace", ""), name)
        return stream(found, parse(query, name, container), lambda: self._has_ended(key, uid))

    def _has_ended(self, key: Key, uid: str) -> bool:
        pod = self._pods.get(*key)
        return not self._children.runs(uid) and (pod is None or pod.metadata.uid != uid or pod.ended)

    # from events to keys

    def _job_of(self, pod: Pod) -> Iterable[Key]:
        owner = pod.metadata.owner("Job", "batch")
        return () if owner is None else (Key(pod.metadata.namespace, owner.name),)

    def _gone(self, before: Pod | None, after: Pod | None, initial: bool) -> None:
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._manager.tasks.spawn(f"forget {before.key}", self._forget(before))

    async def _forget(self, pod: Pod) -> None:
        # The program may still write to the directory of its attempt.
        await self._children.ended(pod.metadata.uid)
        await self._launcher.forget(pod.metadata.uid)

    def _ended(self, child: Child) -> None:
        self._slots.give_back(child.key)
        self._controller.enqueue(child.key)
        attributes = {"k8s.namespace.name": child.key.namespace, "k8s.job.name": child.key.name}
        code = -1 if child.code is None else child.code
        seconds = clock.time() - child.started
        tracing.record("job", seconds, {**attributes, "process.exit.code": code}, failed=code != 0)

    async def _sweep(self) -> None:
        await self._launcher.sweep({pod.metadata.uid for pod in self._pods.all()})

    # one Job

    async def reconcile(self, key: Key) -> Outcome:
        job = self._jobs.get(*key)
        child = self._children.of(key)
        # A child with another uid belongs to a deleted Job of the same name: its program ends before the new Job starts
        # one.
        if job is None or job.metadata.deleting or (child is not None and child.job_uid != job.metadata.uid):
            return self._abandon(key, child, job)
        if job.spec.managed_by != MANAGED_BY:
            return DONE
        if job.finished is not None:
            self._slots.give_back(key)
            return await self._expire(job)
        found = self._pods.select(_OF_JOB, job.metadata.uid)
        # The Pod of the program was deleted. The program ends first, so that two attempts never run at once.
        if child is not None and child.pod_uid not in {pod.metadata.uid for pod in found}:
            if child.code is None:
                return self._end_first(child, "its Pod was deleted")
            self._children.drop(key)
        found = [await self._settle(job, pod) for pod in found]
        why = decisions.refusal(job)
        decision = Finish(False, decisions.NOT_RUNNABLE, why) if why else decisions.decide(job, found, clock.time())
        return await self._act(job, found, decision)

    def _abandon(self, key: Key, child: Child | None, job: Job | None) -> Outcome:
        """Stop the program of a Job that was deleted or is being deleted."""
        if child is None or child.code is not None:
            self._children.drop(key)
            self._slots.give_back(key)
            # A new Job of the same name has waited for the program of the deleted one.
            if job is not None and not job.metadata.deleting:
                self._controller.enqueue(key)
            return DONE
        return self._end_first(child, "the Job was deleted")

    async def _act(self, job: Job, found: list[Pod], decision: decisions.Decision) -> Outcome:
        match decision:
            case Attempt():
                return await self._attempt(job, found, decision)
            case Finish():
                return await self._finish(job, found, decision)
            case Suspend():
                return await self._suspend(job, found)
            case AwaitEvent(why, seconds):
                await self._save(job, found)
                if seconds is None:
                    return Blocked("Running", f"Job {job.key}", why)
                return Requeue(seconds, why)

    async def _attempt(self, job: Job, found: list[Pod], attempt: Attempt) -> Outcome:
        raw = self._jobs.raw(*job.key) or b"{}"
        try:
            job, mark = self._authenticate(raw, job)
        except NotRunnable as error:
            return await self._finish(job, found, Finish(False, decisions.NOT_RUNNABLE, str(error)))
        if before := self._follows(job):
            return Requeue(_FOLLOW_SECONDS, f"waiting until the process of the earlier Job {before} has stopped")
        if not self._slots.ask(job.key):
            others = (
                f"{self._slots.taken} other Jobs run, which is the limit, and {self._slots.waiting - 1} others wait"
            )
            return Blocked("WaitingForTurn", f"Job {job.key}", others)
        pod = attempt.pod
        try:
            if pod is None:
                pod = await self._attempts.make(job, raw, attempt.index)
                found = [*found, pod]
            # Start the program before the Pod says Running: after a crash in between, the Pod is still Pending and the
            # attempt is repeated. The other way around, it would count as lost.
            started = clock.time()
            child = self._children.add(job, pod, await self._attempts.start(job, pod, mark), started)
        except NotReady as error:
            return await self._hold(job, found, str(error))
        except NotRunnable as error:
            return await self._finish(job, found, Finish(False, decisions.NOT_RUNNABLE, str(error)))
        except OSError as error:
            return await self._cannot_start(job, found, pod, error)
        except BaseException:
            # Also after a cancellation: a slot that is not returned is lost for all Jobs.
            self._slots.give_back(job.key)
            raise
        pod = await self._attempts.runs(job, pod, child)
        await self._save(job, [*(one for one in found if one.metadata.uid != pod.metadata.uid), pod])
        if job.spec.active_deadline_seconds is None:
            return Blocked("Running", f"Job {job.key}", "the program is running")
        return Requeue(job.spec.active_deadline_seconds, "the program is running")

    async def _cannot_start(self, job: Job, found: list[Pod], pod: Pod | None, error: OSError) -> Outcome:
        """Record a failed attempt with its error in Pod and Job: no disk space, no process or no interpreter."""
        self._slots.give_back(job.key)
        if pod is None:
            raise error
        pod = await self._attempts.cannot_start(job, pod, f"cannot start the program: {error}")
        found = [*(one for one in found if one.metadata.uid != pod.metadata.uid), pod]
        await self._save(job, found)
        return await self._act(job, found, decisions.decide(job, found, clock.time()))

    def _follows(self, job: Job) -> Key | None:
        """Return the Job that this one follows while its program runs: two programs never work on one server."""
        before = Key(*job.metadata.annotations.get(FOLLOWS, "/").split("/", 1))
        child = self._children.of(before)
        return before if child is not None and child.code is None else None

    def _authenticate(self, raw: bytes, job: Job) -> tuple[Job, Mark]:
        """Decode the bytes that were verified, so that what runs is what was signed. Raises NotRunnable."""
        content = msgspec.json.decode(raw)
        # The reconcile has written to the API since it read the Job; the cache may hold a new Job of that name.
        if (content.get("metadata") or {}).get("uid") != job.metadata.uid:
            raise Retryable(f"Job {job.key} was deleted")
        try:
            mark = marks.verify(self._settings.key, content)
        except BadMark as error:
            raise NotRunnable(str(error)) from None
        verified = JOB.decode(raw)
        # Check the verified bytes again: the struct that `reconcile` checked may be of an older revision.
        if why := decisions.refusal(verified):
            raise NotRunnable(why)
        return verified, mark

    async def _hold(self, job: Job, found: list[Pod], why: str) -> Outcome:
        """Wait for a missing object, and let other Jobs run meanwhile."""
        self._slots.give_back(job.key)
        for pod in found:
            if not pod.ended:
                await self._attempts.waits(job, pod, why)
        await self._save(job, found)
        return Blocked("CreateContainerConfigError", f"Job {job.key}", why, _MISSING_SECONDS)

    async def _settle(self, job: Job, pod: Pod) -> Pod:
        """Write the state of a Pod's program to the Pod; return the updated Pod."""
        child = self._children.of(job.key)
        if child is not None and child.pod_uid == pod.metadata.uid:
            if child.code is None:
                return pod if pod.ended else await self._attempts.runs(job, pod, child)
            # `_suspend` deletes the Pod instead: a program stopped by a suspension must not count against backoffLimit.
            if not pod.ended and not job.spec.suspend:
                pod = await self._attempts.ended(job, pod, child)
            # Only when the end is written: after a failed write the next reconcile needs the exit code again.
            self._children.drop(job.key)
        elif pod.status.phase == "Running":
            pod = await self._attempts.lost(job, pod)
        return pod

    def _end_first(self, child: Child, why: str) -> Outcome:
        self._children.stop(child, why)
        return Blocked("Stopping", f"Job {child.key}", f"the program is being stopped: {why}")

    async def _suspend(self, job: Job, found: list[Pod]) -> Outcome:
        child = self._children.of(job.key)
        if child is not None:
            return self._end_first(child, "the Job was suspended")
        self._slots.give_back(job.key)
        for pod in found:
            if not pod.ended:
                async with DELETE_POD:
                    await self._delete(POD.target, pod.key, pod.metadata.uid)
        await self._save(job, [pod for pod in found if pod.ended], suspended=True)
        return Blocked("Suspended", f"Job {job.key}", "spec.suspend is true")

    async def _finish(self, job: Job, found: list[Pod], finish: Finish) -> Outcome:
        child = self._children.of(job.key)
        if child is not None:
            return self._end_first(child, finish.message)
        self._slots.give_back(job.key)
        # Pods before the Job: `reconcile` does not look at the Pods of a finished Job again.
        for pod in found:
            if not pod.ended:
                await self._attempts.given_up(job, pod, finish.reason, finish.message)
        if finish.reason == decisions.NOT_RUNNABLE:
            self._manager.events.warning(job, finish.reason, finish.message)
        await self._save(job, found, finish=finish)
        return await self._expire(JOB.decode(self._jobs.raw(*job.key) or b"{}"))

    async def _expire(self, job: Job) -> Outcome:
        ttl, finished = job.spec.ttl_seconds_after_finished, job.finished
        if ttl is None or finished is None or finished.last_transition_time is None:
            return DONE
        left = clock.parse(finished.last_transition_time) + ttl - clock.time()
        if left > 0:
            return Requeue(left, "ttlSecondsAfterFinished has not passed yet")
        async with DELETE_JOB:
            await self._delete(JOB.target, job.key, job.metadata.uid)
        return DONE

    async def _delete(self, target: Any, key: Key, uid: str) -> None:
        with ignore_not_found():
            # With the uid as a precondition, a new object of the same name is never deleted.
            await self._client.delete(target, *key, uid=uid, propagation="Background")

    async def _save(self, job: Job, found: list[Pod], *, finish: Finish | None = None, suspended: bool = False) -> None:
        value = self._jobs.raw(*job.key)
        if value is None:
            return
        draft = Draft(JOB.target, value)
        decisions.derive_status(draft.status, job, decisions.Tally.of(found), finish, suspended)
        await save(self._client, draft, SAVE_JOB)


def _owner(pod: Pod) -> Iterable[str]:
    owner = pod.metadata.owner("Job", "batch")
    return () if owner is None else (owner.uid,)
