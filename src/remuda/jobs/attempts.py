"""One attempt of a Job: creates its Pod, starts its program and writes its status, as a kubelet would.

The program gets a kubeconfig with a token of the Job's ServiceAccount. The token is bound to the Pod and expires with
the deadline of the Job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from remuda.jobs import decisions, pods
from remuda.jobs.children import Child
from remuda.jobs.launcher import Launcher, LaunchSpec, Started
from remuda.jobs.marks import Mark
from remuda.jobs.pod_inputs import NotReady, NotRunnable, gather, inside
from remuda.jobs.pod_log import last_lines
from remuda.jobs.types import POD, Job, Pod
from remuda.kube import clock, kubeconfig
from remuda.kube.client import Client
from remuda.kube.core import SERVICE_ACCOUNTS
from remuda.kube.errors import AlreadyExists, Conflict, NotFound
from remuda.kube.quantity import Quantity, QuantityError
from remuda.runtime.caches import Informer
from remuda.runtime.draft import Draft, save
from remuda.runtime.steps import step

CREATE_POD = step("jobrunner.create-pod", "creates the Pod of an attempt")
START = step("jobrunner.start-program", "starts the program of a Pod")
SAVE_POD = step("jobrunner.save-pod", "writes the status of a Pod")

# Lifetime of a token.
_SHORTEST_SECONDS = 600  # minimum of the API server
_USUAL_SECONDS = 24 * 3600
_SPARE_SECONDS = 300

_FALLBACK_LINES, _FALLBACK_BYTES = 80, 2048  # part of the log that becomes the termination message: Kubernetes' limits


class JobAttempts:
    def __init__(
        self, client: Client, cache: Informer[Pod], launcher: Launcher, server_url: str, ca_pem: bytes
    ) -> None:
        self._client = client
        self._cache = cache
        self._launcher = launcher
        self._server_url = server_url
        self._ca_pem = ca_pem

    async def make(self, job: Job, raw: bytes, index: int) -> Pod:
        """Create the Pod of an attempt, or find it. Raises NotRunnable if another owner's Pod has its name."""
        made = pods.make(job, msgspec.json.decode(raw), index)
        # The name depends only on the Job's uid and the index, so a Pod that exists is usually from an earlier run of
        # this runner that stopped after the create.
        with contextlib.suppress(AlreadyExists, Conflict):
            async with CREATE_POD:
                return POD.decode(await self._client.create(POD.target, job.metadata.namespace, made))
        # Read from the API server: the cache may not have the Pod yet.
        present = POD.decode(await self._client.get(POD.target, job.metadata.namespace, made["metadata"]["name"]))
        # The name is predictable, so a user can create a Pod with it first.
        if not any(owner.uid == job.metadata.uid for owner in present.metadata.owner_references):
            raise NotRunnable(
                f"cannot create Pod {present.key}: a Pod of that name exists and belongs to another object"
            )
        return present

    async def start(self, job: Job, pod: Pod, mark: Mark) -> Started:
        """Start the program of an attempt. `mark`: verified for this Job. Raise NotReady and NotRunnable."""
        work = await self._work(job, pod, mark)
        async with START:
            return await self._launcher.start(work)

    async def _work(self, job: Job, pod: Pod, mark: Mark) -> LaunchSpec:
        container = job.spec.template.spec.containers[0]
        materials = await gather(self._client, job, mark)
        config = b""
        if self._launcher.needs_kubeconfig:
            config = await _kubeconfig(self._client, self._server_url, self._ca_pem, job, pod)
        return LaunchSpec(
            uid=pod.metadata.uid,
            name=str(job.key),
            materials=materials,
            kubeconfig=config,
            memory=_memory(container.resources.limits.get("memory")),
            termination_path=inside(container.termination_message_path),
            privileged=bool(mark.rights),
        )

    async def waits(self, job: Job, pod: Pod, message: str) -> Pod:
        return await self._save(pod, lambda status: pods.waiting(status, job, message))

    async def runs(self, job: Job, pod: Pod, child: Child) -> Pod:
        if pod.status.phase == "Running":
            return pod
        return await self._save(pod, lambda status: pods.running(status, job, child.started))

    async def lost(self, job: Job, pod: Pod) -> Pod:
        """Record that the Pod's program was running and this runner does not run it."""
        end = pods.lost(pod.status.start_time)
        return await self._save(pod, lambda status: pods.ended(status, job, end))

    async def given_up(self, job: Job, pod: Pod, reason: str, why: str) -> Pod:
        """Record that the Pod's program was never started and will not be."""
        now = clock.time()
        end = pods.AttemptResult(code=0, started=now, finished=now, reason=reason, why=why)
        return await self._save(pod, lambda status: pods.ended(status, job, end))

    async def cannot_start(self, job: Job, pod: Pod, why: str) -> Pod:
        """Record an attempt whose program could not be started as failed."""
        now = clock.time()
        end = pods.AttemptResult(
            code=decisions.CANNOT_START, started=now, finished=now, reason=decisions.START_ERROR, why=why
        )
        return await self._save(pod, lambda status: pods.ended(status, job, end))

    async def ended(self, job: Job, pod: Pod, child: Child) -> Pod:
        end = self._end(job, child)
        # Save before the files are removed: the termination message is in one of them. A crash in between leaves files,
        # which `sweep` removes at the next start.
        pod = await self._save(pod, lambda status: pods.ended(status, job, end))
        await self._launcher.tidy(pod.metadata.uid)
        return pod

    def _end(self, job: Job, child: Child) -> pods.AttemptResult:
        message = child.handle.termination_message()
        code = child.code or 0
        policy = job.spec.template.spec.containers[0].termination_message_policy
        if not message and code and policy == "FallbackToLogsOnError":
            message = last_lines(self._launcher.log(child.pod_uid), _FALLBACK_LINES, _FALLBACK_BYTES)
        # A program that ends with 0 after SIGTERM has done its work, so its Pod succeeds.
        stopped = child.stopping if code else ""
        return pods.AttemptResult(
            code=code,
            message=message,
            started=child.started,
            finished=child.finished or clock.time(),
            reason=decisions.DEADLINE if stopped else "",
            why=stopped,
        )

    async def _save(self, pod: Pod, change: Callable[[dict[str, Any]], None]) -> Pod:
        value = self._cache.raw(*pod.key)
        # `make` may have read the Pod from the API server before the watch reported it.
        if value is None:
            value = await self._client.get(POD.target, *pod.key)
        draft = Draft(POD.target, value)
        change(draft.status)
        return POD.decode(await save(self._client, draft, SAVE_POD))


async def _kubeconfig(client: Client, server_url: str, ca_pem: bytes, job: Job, pod: Pod) -> bytes:
    """Return the kubeconfig of a Job; empty for a Pod that wants no token. Raise NotReady while its account does not
    exist.
    """
    spec = job.spec.template.spec
    if not spec.automount_service_account_token:
        return b""
    account = spec.service_account_name or "default"
    deadline = job.spec.active_deadline_seconds
    seconds = _USUAL_SECONDS if deadline is None else max(_SHORTEST_SECONDS, deadline + _SPARE_SECONDS)
    # The token is bound to the Pod: it becomes invalid when the Pod is deleted, even before it expires.
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "boundObjectRef": bound},
    }
    try:
        answer: dict[str, Any] = msgspec.json.decode(
            await client.create(SERVICE_ACCOUNTS, job.metadata.namespace, request, name=account, subresource="token")
        )
    except NotFound:
        raise NotReady(f"serviceaccount {account!r} not found") from None
    config = kubeconfig.build(
        server_url, ca_pem=ca_pem, token=answer["status"]["token"], user=account, namespace=job.metadata.namespace
    )
    return yaml.safe_dump(config, sort_keys=False).encode()


def _memory(limit: str | int | float | None) -> int:
    try:
        return 0 if limit is None else Quantity.parse(limit).value()
    except QuantityError:
        return 0
