"""A management cluster as a user runs it: an engine, Remuda's controllers and the simulated provider, each a process.

    Embedded     `remuda up` and the simulator
    OnKubernetes the real kube-apiserver with etcd and kube-controller-manager, `remuda manager` and the simulator

Several may share one cloud, as real ones do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Protocol

from tests.lab import Server, Upstream
from tests.lab.children import die_with_parent
from tests.lab.ours import Ours
from tests.lab.ports import free_port
from tests.lab.server import end, tail


class Program:
    """One of our programs, from its line of readiness to its end."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if " ready" not in line:
            end(self._process)
            raise RuntimeError(f"{name} did not start: {line}\n{tail(self.log)}")

    def stop(self) -> None:
        end(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Management(Protocol):
    @property
    def kubeconfig(self) -> Path: ...

    def stop(self) -> None: ...


class _Up(Ours):
    command = "up"


class Embedded:
    def __init__(self, folder: Path, cloud: Path) -> None:
        folder.mkdir()
        self._server = _Up()
        self.kubeconfig = self._server.kubeconfig
        self._simulator = simulator(folder, self._server, cloud)

    def stop(self) -> None:
        self._simulator.stop()
        self._server.stop()


class OnKubernetes:
    def __init__(self, folder: Path, cloud: Path) -> None:
        folder.mkdir()
        self._server = Upstream()
        self.kubeconfig = self._server.kubeconfig
        arguments = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(self.kubeconfig))
        hosts = ("--nodes-listen", f"127.0.0.1:{free_port()}")  # with the providers that the embedded one has
        self._manager = Program(folder, "manager", *arguments, *hosts)
        self._simulator = simulator(folder, self._server, cloud)

    def stop(self) -> None:
        self._simulator.stop()
        self._manager.stop()
        self._server.stop()


def simulator(folder: Path, server: Server, cloud: Path) -> Program:
    arguments = ("-m", "remuda.lab.simulator", "--kubeconfig", str(server.kubeconfig), "--cloud", str(cloud))
    return Program(folder, "simulator", *arguments)
