"""A host with the real agent on it: the zipapp as it is delivered, a process, and its Secret on a real API server."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from remuda.providers.bootstrap import assets
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.server import Reply, Server

T = TypeVar("T")

SECRETS = "/api/v1/namespaces/default/secrets"
MERGE = {"Content-Type": "application/merge-patch+json"}


def eventually(look: Callable[[], T]) -> T:
    """What `look` gives as soon as that is something."""
    until = time.monotonic() + LIMIT_SECONDS
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"{look} did not come true within {LIMIT_SECONDS} s; it is {found!r}"
        time.sleep(0.02)


def encoded(content: bytes | str) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def wait_for_file(path: str) -> str:
    """A command of the shell that ends when the test has made a file, or after ten minutes if the test is gone."""
    return f"for _ in $(seq 12000); do test -e {path} && break; sleep 0.05; done"


def shell(script: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": "sh", "args": ["-c", script], **more}


class PlanSecret:
    """The Secret of one host, as its manager sees it."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.path = f"{SECRETS}/{name}"

    def create(self, **data: bytes) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "rke.cattle.io/machine-plan",
            "metadata": {"name": self.name},
            "data": {key.replace("_", "-"): encoded(value) for key, value in data.items()},
        }
        self._expect(self.server.http("POST", SECRETS, body), 201)

    def delete(self) -> None:
        self._expect(self.server.http("DELETE", self.path), 200)

    def put(self, plan: dict[str, Any] | bytes | None = None, **data: bytes | None) -> str:
        """Writes a plan and other keys; gives the plan's checksum."""
        import hashlib

        content = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
        values: dict[str, str | None] = {} if plan is None else {"plan": encoded(content), "probe-statuses": None}
        values |= {key.replace("_", "-"): None if value is None else encoded(value) for key, value in data.items()}
        self._expect(self.server.http("PATCH", self.path, {"data": values}, MERGE), 200)
        return hashlib.sha256(content).hexdigest()

    def data(self) -> dict[str, bytes]:
        body = self._expect(self.server.http("GET", self.path), 200).body
        return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}

    def version(self) -> str:
        found: str = self.server.http("GET", self.path).body["metadata"]["resourceVersion"]
        return found

    def text(self, key: str) -> str:
        return self.data().get(key, b"").decode()

    def outputs(self, key: str = "applied-output") -> dict[str, Any]:
        value = self.data().get(key, b"")
        found: dict[str, Any] = json.loads(zlib.decompress(value, wbits=31)) if value else {}
        return found

    def output(self, name: str, key: str = "applied-output") -> bytes:
        return base64.b64decode(self.outputs(key)[name])

    def periodic(self) -> dict[str, Any]:
        return self.outputs("applied-periodic-output")

    def applied(self, checksum: str) -> dict[str, bytes]:
        """Its data once this plan is the applied one."""
        eventually(lambda: self.text("applied-checksum") == checksum)
        return self.data()

    def failed(self, checksum: str, count: int = 1) -> dict[str, bytes]:
        """Return its data once this plan has failed at least `count` times; the agent retries by itself."""

        def look() -> bool:
            data = self.data()
            return data.get("failed-checksum") == checksum.encode() and int(data["failure-count"]) >= count

        eventually(look)
        return self.data()

    @staticmethod
    def _expect(reply: Reply, code: int) -> Reply:
        assert reply.code == code, reply
        return reply


class Host:
    """A folder as a host. `start` and `kill` are what happens to its agent."""

    def __init__(self, folder: Path, kubeconfig: str, secret: str, **config: Any) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self.var = folder / "var"
        self.var.mkdir()
        self.log = folder / "agent.log"
        self.program = folder / "remuda-agent.pyz"
        self.program.write_bytes(assets.agent_zipapp())
        self.address = "127.0.0.1"
        self.process: subprocess.Popen[bytes] | None = None
        info = {"kubeConfig": kubeconfig, "namespace": "default", "secretName": secret}
        self.private("connection.json", json.dumps(info))
        settings: dict[str, Any] = {
            "workDirectory": str(self.var / "work"),
            "remoteEnabled": True,
            "connectionInfoFile": str(self.folder / "connection.json"),
            "appliedPlanDirectory": str(self.var / "applied"),
            "interlockDirectory": str(self.var / "interlock"),
            "journalFile": str(self.var / "journal.json"),
            "upgrade": False,
            **config,
        }
        self.config = self.private("config.yaml", json.dumps(settings))

    def private(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(content)
        return path

    def start(self, *before: str, python: str = sys.executable, **variables: str) -> None:
        """`before` goes between the interpreter and the program."""
        command = [python, *(before or ("-I", "-S")), str(self.program), "run", "--config", str(self.config)]
        command += ["--root", str(self.root), "--address", self.address]
        with self.log.open("ab") as log:
            environment = {**os.environ, "MALLOC_ARENA_MAX": "2", **variables}
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    def kill(self) -> None:
        """Without a word, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As systemd would."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def memory(self) -> int:
        """Resident, in kilobytes."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def lines(self, path: str) -> list[str]:
        file = self.root / path.lstrip("/")
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def host(folder: Path, kubeconfig: str, secret: str, **config: Any) -> Iterator[Host]:
    found = Host(folder, kubeconfig, secret, **config)
    try:
        yield found
    finally:
        if found.process is not None and found.process.poll() is None:
            found.kill()


def account(server: Server, secret: str, verbs: tuple[str, ...] = ("get", "list", "watch", "update", "patch")) -> str:
    """The kubeconfig of an account that may do this with this one Secret, and nothing else."""
    rights = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": list(verbs)}]
    group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    api = "rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": secret, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": secret}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/api/v1/namespaces/default/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount"}),
        (f"{group}/roles", {"apiVersion": api, "kind": "Role", "rules": rights}),
        (f"{group}/rolebindings", {"apiVersion": api, "kind": "RoleBinding", "subjects": [subject], "roleRef": role}),
    ]
    for path, body in bodies:
        reply = server.http("POST", path, {**body, "metadata": {"name": secret}})
        assert reply.code == 201, reply
    path = f"/api/v1/namespaces/default/serviceaccounts/{secret}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = server.http("POST", path, asked).body["status"]["token"]
    return kubeconfig(server.url, server.ca_pem, token)


def kubeconfig(url: str, ca_pem: bytes, token: str) -> str:
    """In YAML, as it is served to hosts."""
    return f"""apiVersion: v1
kind: Config
clusters:
- name: agent
  cluster:
    server: {url}
    certificate-authority-data: {encoded(ca_pem)}
contexts:
- name: agent
  context:
    cluster: agent
    user: agent
current-context: agent
users:
- name: agent
  user:
    token: {token}
"""
