"""The members of etcd as a host sees them: the periodic instruction, run for real beside servers with TLS."""

from __future__ import annotations

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import EtcdMember
from remuda.providers.controlplane.render import Placement
from remuda.providers.controlplane.render import plan as plans
from tests.lab import certificates
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.providers.controlplane.render import sample

_PID = os.getpid()


def address(number: int) -> str:
    """Ports are fixed, so every run has addresses of its own."""
    return f"127.{100 + _PID // 250 % 100}.{_PID % 250}.{number}"


class Host:
    """Its files, and the services of all others."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.servers, self.etcd, self.peers = (
            certificates.Authority(name) for name in ("server-ca", "etcd-ca", "peer-ca")
        )
        self._running: list[tuple[http.server.ThreadingHTTPServer, threading.Thread]] = []
        self._put("server-ca.crt", self.servers.pem)
        self._put("etcd/server-ca.crt", self.etcd.pem)
        self._put("etcd/peer-ca.crt", self.peers.pem)
        for name, authority in (("client", self.etcd), ("peer-server-client", self.peers)):
            certificate, key = authority.client(name)
            self._put(f"etcd/{name}.crt", certificate)
            self._put(f"etcd/{name}.key", key)

    def _put(self, name: str, content: bytes) -> None:
        path = self.root / "var/lib/rancher/k3s/server/tls" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def listen(
        self,
        where: str,
        port: int,
        by: certificates.Authority | None,
        path: str,
        code: int,
        answer: object,
        mutual: bool,
    ) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = json.dumps(answer).encode() if self.path == path else b"what?"
                self.send_response(code if self.path == path else 404)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer((where, port), Handler)
        if by is not None:
            folder = self.root / f"{where}-{port}"
            folder.mkdir()
            certificate, key = by.server(where)
            paths = certificates.write(folder, certificate=certificate, key=key, authority=by.pem)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(paths["certificate"], paths["key"])
            if mutual:
                context.load_verify_locations(paths["authority"])
                context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        self._running.append((server, thread))

    def supervisor(self, members: list[dict[str, object]]) -> None:
        self.listen(address(1), 6443, self.servers, "/db/info", 200, {"members": members}, mutual=False)

    def own_health(self, healthy: bool) -> None:
        self.listen(address(1), 2381, None, "/health", 200, {"health": "true" if healthy else "false"}, mutual=False)

    def health(self, where: str, healthy: bool) -> None:
        answer = {"health": "true" if healthy else "false"}
        self.listen(where, 2379, self.etcd, "/health", 200 if healthy else 503, answer, mutual=True)

    def look(self, patience: float = 0.1) -> subprocess.CompletedProcess[str]:
        plan = plans.read(render.render(sample.plain(), sample.host("etcd", node_name="m1"), Placement(init=True)))
        instruction, _ = plan.periodic
        for file in plan.files:
            if file.path.endswith("host-tool.py"):
                path = self.root / file.path.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.content)
        environment = dict(pair.split("=", 1) for pair in instruction.env) | {
            "PATH": os.environ["PATH"],
            "REMUDA_HOST_ROOT": str(self.root),
            "REMUDA_HOST_ADDRESS": address(1),
            "REMUDA_PYTHON": sys.executable,
            "REMUDA_PATIENCE_SECONDS": str(patience),
        }
        command = [instruction.command, *instruction.args]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )

    def stop(self) -> None:
        for server, thread in self._running:
            server.shutdown()
            server.server_close()
            thread.join()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.stop()


def member(number: int, **more: object) -> dict[str, object]:
    return {"ID": number, "name": f"m{number}-abc", "peerURLs": [f"https://{address(number)}:2380"], **more}


def test_members_are_listed_with_health_and_learner_state(host: Host) -> None:
    host.supervisor([member(4), member(3, isLearner=True), member(2), member(1), member(5)])
    host.own_health(healthy=True)
    host.health(address(2), healthy=False)
    host.health(address(3), healthy=True)
    # One whose client port speaks nothing but gRPC, and one that is dead.
    host.listen(address(4), 2379, host.etcd, "/nothing", 200, {}, mutual=True)
    host.listen(address(4), 2380, host.peers, "/version", 200, {"etcdserver": "3.6.4"}, mutual=True)
    done = host.look()
    assert done.returncode == 0, done.stderr
    assert [EtcdMember(**found) for found in json.loads(done.stdout)["members"]] == [
        EtcdMember("m1-abc", address(1)),
        EtcdMember("m2-abc", address(2), healthy=False),
        EtcdMember("m3-abc", address(3), learner=True),
        EtcdMember("m4-abc", address(4)),
        EtcdMember("m5-abc", address(5), healthy=False),
    ]


def test_unchanged_members_give_identical_output(host: Host) -> None:
    """What has not changed is not written."""
    host.supervisor([member(1)])
    host.own_health(healthy=True)
    first, second = host.look(), host.look()
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


def test_member_with_foreign_certificate_is_unhealthy(host: Host) -> None:
    host.supervisor([member(1)])
    host.listen(address(1), 2379, certificates.Authority("other"), "/health", 200, {"health": "true"}, mutual=False)
    [found] = json.loads(host.look().stdout)["members"]
    assert found["healthy"] is False


def test_unreachable_server_is_reported(host: Host) -> None:
    done = host.look()
    assert done.returncode != 0
    assert done.stderr.startswith("members: ")


def test_starting_server_is_awaited(host: Host) -> None:
    starts = threading.Timer(0.5, host.supervisor, [[member(1)]])
    host.own_health(healthy=True)
    starts.start()
    done = host.look(patience=LIMIT_SECONDS)
    starts.join()
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)["members"]] == ["m1-abc"]


def test_persistent_learner_is_reported(host: Host) -> None:
    host.supervisor([member(1, isLearner=True)])
    host.own_health(healthy=True)
    [found] = json.loads(host.look().stdout)["members"]
    assert found["learner"] is True


def test_unhealthy_local_member_is_reported(host: Host) -> None:
    host.supervisor([member(1)])
    host.own_health(healthy=False)
    host.health(address(1), healthy=True)
    [found] = json.loads(host.look().stdout)["members"]
    assert found["healthy"] is False
