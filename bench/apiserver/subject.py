"""A server under measurement: ours, or etcd with kube-apiserver, started the same way and asked by the same user.

The user is known by a static token, which a load generator can send, and may do what it does through RBAC, as any
controller would. The peer's etcd syncs every write to disk, as ours does.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from tests.lab import Ours, Upstream
from tests.lab.peers import peer_path
from tests.lab.server import Reply, Server

from bench.apiserver import objects
from bench.report import Broken

TOKEN = "bench-token"
_SETTLE_SECONDS = 3  # after which memory is what stays


class Subject:
    def __init__(self, server: Server, pids: Sequence[int], command: str, ready_after: float) -> None:
        self.server = server
        self.ready_after = ready_after
        self.command = command
        self._pids = pids
        address = urlsplit(server.url)
        self.host, self.port = address.hostname or "", address.port or 443

    def resident_megabytes(self) -> float:
        """Of all its processes, once it has come to rest."""
        time.sleep(_SETTLE_SECONDS)
        return sum(_resident_kilobytes(pid) for pid in self._pids) / 1024

    def cpu_seconds(self) -> float:
        return sum(_cpu_seconds(pid) for pid in self._pids)

    def ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Reply:
        reply = self.server.http(method, path, body, {"Content-Type": content_type})
        if reply.code >= 400:
            raise Broken(f"{self.server.name} answered {method} {path} with {reply}")
        return reply

    def prepare(self) -> None:
        """The kind that is measured, and the user's right to it."""
        self.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", objects.definition())
        for path, obj in objects.access():
            self.ask("POST", path, obj)
        deadline = time.monotonic() + 20
        while self.server.http("GET", objects.collection()).code != 200:
            if time.monotonic() > deadline:
                raise Broken(f"{self.server.name} does not serve the new kind")
            time.sleep(0.05)

    def stop(self) -> None:
        self.server.stop()


@contextmanager
def installed() -> Iterator[None]:
    """Our server starts from bytecode, as an installed program does, whatever this environment says about it."""
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as folder:
        before = dict(os.environ)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        try:
            start_ours().stop()
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def start_ours() -> Subject:
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as tokens:
        _write_token(tokens)
        started = time.monotonic()
        server = Ours("--token-auth-file", tokens.name)
        after = time.monotonic() - started
    return Subject(server, [server.process.pid], _command(server.process.args), after)


def start_peer() -> Subject:
    missing = [name for name in ("etcd", "kube-apiserver") if not os.access(peer_path(name), os.X_OK)]
    if missing:
        raise Broken(f"no {' and '.join(missing)} at the pinned version; build with: interop/build {' '.join(missing)}")
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as tokens:
        _write_token(tokens)
        started = time.monotonic()
        server = Upstream(f"--token-auth-file={tokens.name}", durable=True, controllers=False)
        after = time.monotonic() - started
    command = "\n".join(_command(process.args) for process in server.children)
    versions = ", ".join(peer_path(name).name for name in ("etcd", "kube-apiserver"))
    return Subject(server, [process.pid for process in server.children], f"{versions}\n{command}", after)


def _write_token(file: IO[str]) -> None:
    file.write(f"{TOKEN},{objects.USER},{objects.USER}\n")
    file.flush()


def _command(arguments: Any) -> str:
    return " ".join(str(argument) for argument in arguments)


def _resident_kilobytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise Broken(f"process {pid} is gone")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
