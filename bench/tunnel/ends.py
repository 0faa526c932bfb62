"""The processes under measurement: a server of each kind, and at each a client of each kind.

All over TLS, on one machine, at once: those that are not being measured do nothing meanwhile but ping.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.certificates import Authority, write
from tests.lab.children import die_with_parent
from tests.lab.peers import peer_path
from tests.lab.ports import free_port

from bench.report import Broken

OURS, GO = "ours", "go"
_SOURCE = Path(__file__).parents[2] / "src"
_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 60.0


class Process:
    """A child that ends with us; `said` is the first line it prints."""

    def __init__(self, command: Sequence[str], log: Path, *, speaks: bool = True, **environment: str) -> None:
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE if speaks else file,
                stderr=file,
                env={**os.environ, **environment},
                preexec_fn=die_with_parent,
            )
        self.said = self._process.stdout.readline().decode() if self._process.stdout is not None else ""
        if speaks and not self.said:
            raise Broken(f"{command[0]} did not start:\n{log.read_text()[-2000:]}")

    def megabytes(self) -> float:
        for line in self._about("status").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise Broken(f"a process has no memory:\n{self._log.read_text()[-2000:]}")

    def processor_seconds(self) -> float:
        fields = self._about("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _about(self, what: str) -> str:
        try:
            return Path(f"/proc/{self._process.pid}/{what}").read_text()
        except FileNotFoundError:
            raise Broken(f"a process has ended:\n{self._log.read_text()[-2000:]}") from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Server:
    """A server's end, with its control, at the same address in all its lives."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder / f"{kind}-server"
        self._folder.mkdir()
        certificate, key = (authority := Authority("tunnels")).server("127.0.0.1")
        self._files = write(self._folder, ca=authority.pem, certificate=certificate, key=key)
        self._listen = f"127.0.0.1:{free_port()}"
        self.start()

    def start(self) -> None:
        if self.kind == GO:
            files = ["--certificate", str(self._files["certificate"]), "--key", str(self._files["key"])]
            command = [str(peer_path("remotedialer")), "server", *files]
        else:
            command = [sys.executable, "-m", "bench.tunnel.server", "--data-dir", str(self._folder / "data")]
        self.process = Process([*command, "--listen", self._listen], self._folder / "log")
        self.said: dict[str, str] = json.loads(self.process.said)

    @property
    def url(self) -> str:
        return self.said["url"]

    @property
    def authority(self) -> Path:
        return Path(self.said.get("ca") or self._files["ca"])

    def forward(self, key: str, address: str) -> tuple[str, int]:
        body = json.dumps({"key": key, "network": "tcp", "address": address}).encode()
        host, _, port = self._control("/forward", body)["address"].rpartition(":")
        return host, int(port)

    def sessions(self) -> list[str]:
        return self._control("/sessions")["sessions"]

    def wait_for(self, key: str) -> None:
        until = time.monotonic() + _START_SECONDS
        while key not in self.sessions():
            if time.monotonic() > until:
                raise Broken(f"{key} has not come to the {self.kind} server")
            time.sleep(0.05)

    def _control(self, path: str, body: bytes | None = None) -> Any:
        with urllib.request.urlopen(self.said["control"] + path, body, timeout=60) as answer:
            return json.load(answer)


def start_client(kind: str, server: Server, key: str, folder: Path, python: str) -> Process:
    """One client's end, as a host runs it."""
    log = folder / f"{key}.log"
    if kind == GO:
        options = ["--url", server.url, "--ca", str(server.authority), "--id", key, "--allow", "tcp/"]
        return Process([str(peer_path("remotedialer")), "client", *options], log)
    config = folder / f"{key}.json"
    config.write_text(
        json.dumps(
            {
                "urls": [server.url],
                "authorities": [str(server.authority)],
                "headers": {"X-Tunnel-ID": key},
                "allow": ["tcp/127.0.0.1:*"],
            }
        )
    )
    return Process([python, "-m", "remuda.tunnel", "--config", str(config)], log, speaks=False, PYTHONPATH=str(_SOURCE))


class Pair:
    """A server and a client with a tunnel between them, and a port at the server that leads to the service."""

    def __init__(self, server: Server, kind: str, service: int, folder: Path, python: str) -> None:
        self.name = f"{server.kind}-{kind}"
        self.server = server
        self.client = start_client(kind, server, self.name, folder, python)
        server.wait_for(self.name)
        self.address = server.forward(self.name, f"127.0.0.1:{service}")

    def processor_seconds(self) -> float:
        return self.server.process.processor_seconds() + self.client.processor_seconds()
