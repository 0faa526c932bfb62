"""What tests of the job runner share: a runner on an engine, and Jobs for it."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from remuda.jobs import MANAGED_BY
from remuda.jobs.processes import Processes
from remuda.jobs.runner import JobRunner, Settings
from remuda.kube.core import JOBS, PODS
from remuda.runtime.manager import Manager
from tests.controllers.engine import Engine, is_true

Json = dict[str, Any]

PROGRAM = (sys.executable, str(Path(__file__).parents[1] / "lab" / "job_program.py"))


class Runner:
    """`setup` adds one to a manager; `runner` is the last one added."""

    def __init__(self, engine: Engine, directory: Path, *, concurrency: int = 8) -> None:
        cluster = yaml.safe_load(engine.kubeconfig.read_text())["clusters"][0]["cluster"]
        self.directory = directory / "jobs"
        self.settings = Settings(
            directory=self.directory,
            hosts=directory / "hosts",
            server_url=cluster["server"],
            ca_pem=base64.b64decode(cluster["certificate-authority-data"]),
            concurrency=concurrency,
        )
        self.runner: JobRunner | None = None

    def setup(self, manager: Manager) -> None:
        launcher = Processes(self.settings.directory, self.settings.hosts, program=PROGRAM)
        self.runner = JobRunner(manager, self.settings, launcher)

    async def log(self, pod: Json, **query: str) -> str:
        assert self.runner is not None
        found = self.runner.log_source(pod, query)
        assert found is not None
        return b"".join([chunk async for chunk in found]).decode()


def job(name: str, *arguments: str, command: str = "remuda", container: Json | None = None, pod: Json | None = None,
        **spec: Any) -> Json:  # fmt: skip
    inner = {"name": "work", "image": "remuda", "command": [command, *arguments], **(container or {})}
    template = {"spec": {"restartPolicy": "Never", "containers": [inner], **(pod or {})}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"managedBy": MANAGED_BY, "backoffLimit": 0, "template": template, **spec},
    }


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
