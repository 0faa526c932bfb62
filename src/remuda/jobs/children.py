"""Running programs by Job, each with the task that waits for its end, and the limit of how many run at once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from remuda.jobs.launcher import Started
from remuda.jobs.types import Job, Pod
from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.runtime.tasks import Tasks

_LONGEST_GRACE_SECONDS = 30.0  # also the default of terminationGracePeriodSeconds
_END_SECONDS = 5.0  # of grace when the runner itself ends


class Child:
    """Program of a Job. `code` is None while it runs; `stopping` is the reason why it was asked to end."""

    def __init__(self, key: Key, job: Job, pod: Pod, handle: Started, started: float) -> None:
        self.key = key
        self.job_uid = job.metadata.uid
        self.pod_uid = pod.metadata.uid
        self.handle = handle
        self.started = started
        self.finished: float | None = None
        self.code: int | None = None
        self.stopping = ""
        self.over = asyncio.Event()
        grace = job.spec.template.spec.termination_grace_period_seconds
        self.grace = _LONGEST_GRACE_SECONDS if grace is None else min(float(grace), _LONGEST_GRACE_SECONDS)


class Children:
    def __init__(self, ended: Callable[[Child], None]) -> None:
        self._ended = ended
        self._by_job: dict[Key, Child] = {}
        self._tasks = Tasks()
        self._stopping = Tasks()

    def of(self, key: Key) -> Child | None:
        return self._by_job.get(key)

    def add(self, job: Job, pod: Pod, handle: Started, started: float) -> Child:
        child = self._by_job[job.key] = Child(job.key, job, pod, handle, started)
        self._tasks.spawn(f"job {job.key}", self._wait(child))
        return child

    async def _wait(self, child: Child) -> None:
        code = await child.handle.wait()
        child.code, child.finished = code, clock.time()
        child.over.set()
        self._ended(child)

    def runs(self, pod_uid: str) -> bool:
        return any(child.pod_uid == pod_uid and child.code is None for child in self._by_job.values())

    async def ended(self, pod_uid: str) -> None:
        """Return when the program of that Pod has ended."""
        for child in list(self._by_job.values()):
            if child.pod_uid == pod_uid:
                await child.over.wait()

    def stop(self, child: Child, why: str) -> None:
        """Ask the program to end, and kill it after its grace period."""
        # Reconciles repeat the request: only the first one starts the grace period, and its reason is the one reported.
        if child.code is None and not child.stopping:
            child.stopping = why
            self._stopping.spawn(f"end job {child.key}", _stop(child, child.grace))

    def drop(self, key: Key) -> None:
        """Forget the Job's process after its end has been written."""
        self._by_job.pop(key, None)

    async def close(self) -> None:
        """Stop all programs now."""
        left = [child for child in self._by_job.values() if child.code is None]
        await asyncio.gather(*(_stop(child, min(child.grace, _END_SECONDS)) for child in left))
        await self._stopping.close()
        await self._tasks.finish(_END_SECONDS)
        await self._tasks.close()


async def _stop(child: Child, grace: float) -> None:
    child.handle.terminate()
    try:
        async with asyncio.timeout(grace):
            await child.over.wait()
    except TimeoutError:
        child.handle.kill()
        await child.over.wait()


class ConcurrencyLimit:
    """Limit of the programs that run at once. Namespaces take turns; each namespace's Jobs run first in, first out."""

    def __init__(self, most: int, wake: Callable[[Key], None]) -> None:
        """`wake` is called with each queued Job that gets a slot."""
        self._most = most
        self._wake = wake
        self._holders: set[Key] = set()
        self._waiting: OrderedDict[str, OrderedDict[Key, None]] = OrderedDict()

    def ask(self, key: Key) -> bool:
        """Request a slot for the Job and return whether it has one. It stays queued until then, and keeps the slot
        until `give_back`."""
        if key in self._holders:
            return True
        self._waiting.setdefault(key.namespace, OrderedDict()).setdefault(key)
        self._hand_out(asking=key)
        return key in self._holders

    def give_back(self, key: Key) -> None:
        """Release the Job's slot, or remove it from the queue."""
        self._holders.discard(key)
        queue = self._waiting.get(key.namespace)
        if queue is not None:
            queue.pop(key, None)
            if not queue:
                del self._waiting[key.namespace]
        self._hand_out()

    @property
    def taken(self) -> int:
        return len(self._holders)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _hand_out(self, asking: Key | None = None) -> None:
        while self._waiting and len(self._holders) < self._most:
            namespace, queue = next(iter(self._waiting.items()))
            key, _ = queue.popitem(last=False)
            # The next free slot goes to another namespace, so that many Jobs of one tenant do not delay the Jobs of
            # others.
            self._waiting.move_to_end(namespace)
            if not queue:
                del self._waiting[namespace]
            self._holders.add(key)
            # The asking reconcile continues with its slot; waking it would only run it a second time.
            if key != asking:
                self._wake(key)
