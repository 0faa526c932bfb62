"""What tests of the job runner share: a runner on an engine, and Jobs for it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from remuda.jobs import COMMAND, MANAGED_BY, marks
from remuda.jobs.marks import FILE, Inputs, JobKey
from remuda.jobs.processes import Processes
from remuda.jobs.runner import JobRunner, JobRunnerSettings
from remuda.kube.client import Target
from remuda.kube.core import JOBS, PODS, SECRETS
from remuda.runtime.manager import Manager
from tests.controllers.engine import Engine, is_true

Json = dict[str, Any]

PROGRAM = "tests.lab.job_program"
_WORDS = "tests/words"  # annotation of a Job: what the stand-in for remuda is to do


class Runner:
    """`setup` adds one to a manager; `runner` is the last one added."""

    def __init__(self, engine: Engine, directory: Path, *, concurrency: int = 8) -> None:
        cluster = yaml.safe_load(engine.kubeconfig.read_text())["clusters"][0]["cluster"]
        self.directory = directory / "jobs"
        self.settings = JobRunnerSettings(
            directory=self.directory,
            hosts=directory / "hosts",
            server_url=cluster["server"],
            ca_pem=base64.b64decode(cluster["certificate-authority-data"]),
            key=JobKey.load(directory / FILE),
            concurrency=concurrency,
        )
        self._engine = engine
        self.rights: Sequence[str] = ("host_files",)  # stand-ins write to the test's directory
        self.runner: JobRunner | None = None

    def setup(self, manager: Manager) -> None:
        launcher = Processes(self.settings.directory, self.settings.hosts, program=PROGRAM)
        self.runner = JobRunner(manager, self.settings, launcher)

    async def submit(self, namespace: str, made: Json, given: Inputs | None = None) -> Json:
        """Create a Job as the manager would. `given`: what it mounts that is not there yet."""
        words = made["metadata"].get("annotations", {}).get(_WORDS)
        if words:
            data = {"stringData": {"words.json": words}}
            await put(self._engine, SECRETS, namespace, f"{made['metadata']['name']}-words", data)
        return await self._engine.create(JOBS, namespace, await self.signed(namespace, made, given))

    async def signed(self, namespace: str, made: Json, given: Inputs | None = None) -> Json:
        """Return the Job with a mark that covers what it mounts now."""
        made = {**made, "metadata": {**made["metadata"], "namespace": namespace}}
        found = {**(given or {})}
        for volume in made["spec"]["template"]["spec"].get("volumes") or ():
            name = volume.get("secret", {}).get("secretName", "")
            secret = await self._engine.get(SECRETS, namespace, name) if name else None
            if secret is not None:
                data = secret.get("data") or {}
                found[f"secrets/{name}"] = {key: base64.b64decode(value) for key, value in data.items()}
        return marks.sign(self.settings.key, made, found, self.rights)

    async def log(self, pod: Json, **query: str) -> str:
        assert self.runner is not None
        found = self.runner.log_source(pod, query)
        assert found is not None
        return b"".join([chunk async for chunk in found]).decode()


def job(
    name: str,
    *arguments: str,
    command: Sequence[str] = COMMAND,
    container: Json | None = None,
    pod: Json | None = None,
    **spec: Any,
) -> Json:
    """`arguments`: what the stand-in for remuda is to do. It reads them from a Secret, because the command is fixed."""
    container, pod = {**(container or {})}, {**(pod or {})}
    metadata: Json = {"name": name}
    if arguments:
        metadata["annotations"] = {_WORDS: json.dumps(arguments)}
        mount = {"name": "words", "mountPath": "/run/words"}
        container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
        pod["volumes"] = [*pod.get("volumes", ()), {"name": "words", "secret": {"secretName": f"{name}-words"}}]
    inner = {"name": "work", "image": "remuda", "command": list(command), **container}
    template = {"spec": {"restartPolicy": "Never", "containers": [inner], **pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"managedBy": MANAGED_BY, "backoffLimit": 0, "template": template, **spec},
    }


async def put(engine: Engine, target: Target, namespace: str, name: str, obj: Json) -> None:
    if await engine.get(target, namespace, name) is None:
        await engine.create(target, namespace, {"metadata": {"name": name}, **obj})
    else:
        await engine.patch(target, namespace, name, obj)


async def finished(engine: Engine, namespace: str, name: str) -> Json:
    return await engine.until(
        JOBS, namespace, name, lambda found: is_true(found, "Complete") or is_true(found, "Failed")
    )


async def pod_of(engine: Engine, namespace: str, name: str, holds: Callable[[Json], object] = bool) -> Json:
    """The only Pod of a Job, as soon as `holds` of it."""

    def one(pods: list[Json]) -> Json | None:
        found = [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == name and holds(pod)]
        return found[0] if found else None

    return await engine.when(PODS, namespace, one)  # type: ignore[no-any-return]


def running(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") == "Running"


def ended(pod: Json) -> Json:
    return pod["status"]["containerStatuses"][0]["state"]["terminated"]  # type: ignore[no-any-return]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
