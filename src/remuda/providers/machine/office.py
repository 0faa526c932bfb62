"""What every controller needs that makes Jobs: who this management plane is, how Jobs ended, Secrets as they are."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remuda.jobs.types import FAILED, JOB, POD, Job, Pod
from remuda.jobs.types import NAME_LABEL as JOB_NAME_LABEL
from remuda.kube.client import Client
from remuda.kube.core import NAMESPACES, PODS, SECRETS
from remuda.kube.errors import StatusError
from remuda.providers.machine import manifests, results
from remuda.providers.machine.results import Result
from remuda.providers.machine.settings import MachineSettings
from remuda.runtime.manager import Manager

_NOT_FOUND = 404


class Office:
    """To be made before the caches start."""

    def __init__(self, manager: Manager, settings: MachineSettings) -> None:
        self.manager = manager
        self.settings = settings
        self.client: Client = manager.client
        self.events = manager.events
        self.jobs = manager.caches.of(JOB, label_selector="" if settings.run_jobs else manifests.MACHINE_KIND)
        self._owner = ""

    async def owner(self) -> str:
        """Which management plane this is: it is on every server, so that those of others are left alone."""
        if not self._owner:
            found = msgspec.json.decode(await self.client.get(NAMESPACES, "", "kube-system"))
            self._owner = found["metadata"]["uid"]
        return self._owner

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        try:
            value = await self.client.get(SECRETS, namespace, name)
        except StatusError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        return msgspec.json.decode(value, type=_Data).data or {}

    async def result(self, job: Job) -> Result | None:
        """How a Job ended; None while it has not."""
        failed = job.has(FAILED) is not None
        return results.result(job, await self._pods(job) if failed else ())

    async def _pods(self, job: Job) -> list[Pod]:
        selector = f"{JOB_NAME_LABEL}={job.metadata.name}"
        listing = await self.client.list(PODS, job.metadata.namespace, label_selector=selector)
        pods = [POD.decode(value) for value in listing.items]
        return [pod for pod in pods if (owner := pod.metadata.controller) and owner.uid == job.metadata.uid]


class _Data(msgspec.Struct):
    data: dict[str, bytes] | None = None
