"""Context of controllers that create Jobs: id of this management plane, results of Jobs, uncached Secrets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remuda.jobs.types import FAILED, JOB, POD, Job, Pod
from remuda.jobs.types import NAME_LABEL as JOB_NAME_LABEL
from remuda.kube.client import Client
from remuda.kube.core import NAMESPACES, PODS, SECRETS
from remuda.kube.errors import NotFound
from remuda.kube.objects import Key
from remuda.providers.shared.jobs import manifests, protection, results
from remuda.providers.shared.jobs.manifests import JobOwner
from remuda.providers.shared.jobs.results import Result
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.runtime.manager import Manager


class JobContext:
    """State shared by controllers that create Jobs. Create it before the caches start."""

    def __init__(self, manager: Manager, settings: MachineSettings) -> None:
        self.manager = manager
        self.settings = settings
        self.client: Client = manager.client
        self.events = manager.events
        self.jobs = manager.caches.of(JOB, label_selector="" if settings.run_jobs else manifests.MACHINE_KIND)
        self.protected = protection.informer(manager.caches)
        self._owner = ""

    async def owner(self) -> str:
        """Return the id of this management plane. Each server is tagged with it; servers of others are left alone."""
        if not self._owner:
            found = msgspec.json.decode(await self.client.get(NAMESPACES, "", "kube-system"))
            self._owner = found["metadata"]["uid"]
        return self._owner

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        try:
            value = await self.client.get(SECRETS, namespace, name)
        except NotFound:
            return None
        return msgspec.json.decode(value, type=_Data).data or {}

    def job(self, place: JobOwner) -> Job | None:
        """Return the Job of a machine or an RKECluster; never one of an earlier object of the same name."""
        for one in (place, self.elsewhere(place)):
            found = self.jobs.get(one.namespace, one.provision)
            if found is not None and one.owns(found.metadata):
                return found
        return None

    def elsewhere(self, place: JobOwner) -> JobOwner:
        return msgspec.structs.replace(place, elsewhere=self.settings.removal_namespace)

    async def terminating(self, namespace: str) -> bool:
        """Return True if a namespace is being deleted, and this manager may work in another one."""
        if self.manager.namespace:
            return False
        try:
            found = msgspec.json.decode(await self.client.get(NAMESPACES, "", namespace))
        except NotFound:
            return False
        return "deletionTimestamp" in found["metadata"]

    async def protect(self, key: Key) -> bool:
        """Keep a Secret for the removal of a server. Return False if there is none. A manager of one namespace cannot
        remove servers when that is deleted, and keeps nothing."""
        return bool(self.manager.namespace) or await protection.protect(self.client, self.protected, key)

    async def result(self, job: Job) -> Result | None:
        """Return the result of a Job; None while it has not ended."""
        failed = job.has(FAILED) is not None
        return results.result(job, await self._pods(job) if failed else ())

    async def running_pods(self, place: JobOwner) -> list[Pod]:
        """Return the running Pods of a place's Jobs, including Pods of deleted Jobs."""
        return [pod for pod in await self._named_pods(place.job_key) if not pod.ended]

    async def _pods(self, job: Job) -> list[Pod]:
        pods = await self._named_pods(job.key)
        return [pod for pod in pods if (owner := pod.metadata.controller) and owner.uid == job.metadata.uid]

    async def _named_pods(self, job: Key) -> list[Pod]:
        listing = await self.client.list(PODS, job.namespace, label_selector=f"{JOB_NAME_LABEL}={job.name}")
        return [POD.decode(value) for value in listing.items]


class _Data(msgspec.Struct):
    data: dict[str, bytes] | None = None
