"""The `remuda` command as its users run it: a process, its output, its exit code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.children import die_with_parent
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.server import Server, end, tail

READY = re.compile(
    r"remuda apiserver ready at (https://\S+) after [0-9.]+ s, pid ([0-9]+), kubeconfig (\S+)\n", re.ASCII
)
COMMAND = (sys.executable, "-m", "remuda.cli.main")


class Ended:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"<exit code {self.code}, said {self.out!r}, complained {self.err!r}>"


def run(*arguments: str | Path, seconds: float = LIMIT_SECONDS, cwd: Path | None = None) -> Ended:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=seconds, check=False, cwd=cwd
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def begin(*arguments: str | Path, log: Path | None = None) -> subprocess.Popen[str]:
    """A command that goes on beside the test."""
    with (log or Path(os.devnull)).open("ab") as errors:
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # a Ctrl-C at the tests is not one at the program
            preexec_fn=_as_from_a_terminal,
        )


def _as_from_a_terminal() -> None:
    """Tests may run in the background of a script, where Ctrl-C is ignored, and so it would be by what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()


class Running(Server):
    """A server that said it is ready."""

    name = "ours"
    command = "apiserver"
    ready = READY

    def __init__(self, data: Path, *flags: str) -> None:
        self.data = data
        self.log = data.with_name(f"{data.name}.log")
        self.process = begin(self.command, "--data-dir", data, "--listen", "127.0.0.1:0", *flags, log=self.log)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        if not self.ready.fullmatch(self.line):
            end(self.process)
            raise AssertionError(f"no ready line but {self.line!r}\n{tail(self.log)}")
        super().__init__(data / "admin.kubeconfig")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def complaints(self) -> str:
        return self.log.read_text()

    def signal(self, number: int, *, within: float = LIMIT_SECONDS) -> tuple[int, str]:
        """Exit code, and what was printed after the ready line."""
        assert self.process.stdout is not None
        os.kill(self.process.pid, number)
        return self.process.wait(within), self.process.stdout.read()

    def stop(self) -> None:
        super().stop()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def create(self, name: str, **data: str) -> dict[str, Any]:
        reply = self.http("POST", "/api/v1/namespaces/default/configmaps", configmap(name, **data))
        assert reply.code == 201, reply
        return dict(reply.body)

    def names(self) -> set[str]:
        reply = self.http("GET", "/api/v1/namespaces/default/configmaps")
        assert reply.code == 200, reply
        return {item["metadata"]["name"] for item in reply.body["items"]}


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@contextmanager
def serving(data: Path, *flags: str) -> Iterator[Running]:
    server = Running(data, *flags)
    try:
        yield server
    finally:
        server.stop()


def terminate(server: Running) -> None:
    code, _ = server.signal(signal.SIGTERM)
    assert code == 0, server.complaints


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
