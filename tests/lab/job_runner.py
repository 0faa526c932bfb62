"""A job runner as a process of its own, to be killed: KUBECONFIG NAMESPACE DIRECTORY."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path

import yaml

from remuda.jobs.marks import FILE, JobKey
from remuda.jobs.processes import Processes
from remuda.jobs.runner import JobRunner, JobRunnerSettings
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from remuda.runtime.manager import Manager

PROGRAM = "tests.lab.job_program"


async def main(config: Path, namespace: str, directory: Path) -> None:
    cluster = yaml.safe_load(config.read_text())["clusters"][0]["cluster"]
    ca_pem = base64.b64decode(cluster["certificate-authority-data"])
    client = HttpClient(kubeconfig.load(config))
    manager = Manager(client, namespace=namespace, name="runner")
    hosts = directory / "hosts"
    settings = JobRunnerSettings(
        directory=directory / "jobs",
        hosts=hosts,
        server_url=cluster["server"],
        ca_pem=ca_pem,
        key=JobKey.load(directory / FILE),
    )
    JobRunner(manager, settings, Processes(settings.directory, hosts, program=PROGRAM))
    await manager.run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
