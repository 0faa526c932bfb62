"""The two agents that follow a plan Secret: upstream's system-agent (Go) and ours (one zipapp), each as a real process
with folders of its own, and with a kubeconfig that reaches one Secret and nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from remuda.kube import kubeconfig
from remuda.providers.bootstrap.assets import agent_zipapp
from tests.lab.children import die_with_parent
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.missing import missing
from tests.lab.peers import require_peer
from tests.lab.server import Server, end, tail

NAMESPACE = "default"
PERIOD = 0.3  # seconds between two passes of an agent
UNIX_DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ 1-3]\d \d\d:\d\d:\d\d UTC \d{4}")
Data = dict[str, bytes]


def require_root() -> None:
    if os.geteuid() != 0:
        missing("the real system-agent runs as root only")


def encoded(plan: Any) -> bytes:
    """The bytes of a plan; bytes are left as they are."""
    return plan if isinstance(plan, bytes) else json.dumps(plan).encode()


def checksum(plan: Any) -> bytes:
    return hashlib.sha256(encoded(plan)).hexdigest().encode()


def unpacked(value: bytes) -> Any:
    """What agents keep as gzip of JSON."""
    return json.loads(gzip.decompress(value)) if value else {}


def outputs(value: bytes) -> dict[str, bytes]:
    return {name: base64.b64decode(output or "") for name, output in unpacked(value).items()}


class PlanSecret:
    """A plan Secret and the account that may touch it; all its states, as a watch brings them."""

    def __init__(self, server: Server, period: float = PERIOD) -> None:
        self.server = server
        self._period = period
        self.name = f"plan-{secrets.token_hex(4)}"
        self.path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{self.name}"
        self.states: list[Data] = []  # one for each change, the newest last
        self._news = threading.Condition()
        self._over = False
        self.token = self._account()
        self.create()
        threading.Thread(target=self._watch, daemon=True).start()

    def create(self, **data: str) -> None:
        body = {
            "metadata": {"name": self.name, "labels": {"kept": "yes"}},
            "type": "rke.cattle.io/machine-plan",
            "stringData": {"probe-period-seconds": str(self._period), "of-others": "kept", **data},
        }
        self._do("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", body)

    def delete(self) -> None:
        self._do("DELETE", self.path)

    def write(self, plan: Any = None, **keys: str | None) -> None:
        """Keys are spelt with _ for -; None takes one away."""
        data: dict[str, str | None] = {
            key.replace("_", "-"): None if value is None else base64.b64encode(value.encode()).decode()
            for key, value in keys.items()
        }
        if plan is not None:
            data["plan"] = base64.b64encode(encoded(plan)).decode()
        self._do("PATCH", self.path, {"data": data}, "application/merge-patch+json")

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self._do("GET", self.path)
        return found

    @property
    def data(self) -> Data:
        return _decoded(self.read())

    def wait(self, until: Callable[[Data], bool], what: str, seconds: float = LIMIT_SECONDS, since: int = 0) -> Data:
        """The first state of which it is true: of all there were, or of those after the first `since`."""
        deadline, seen = time.monotonic() + seconds, since
        with self._news:
            while True:
                for state in self.states[seen:]:
                    if until(state):
                        return state
                seen = len(self.states)
                left = deadline - time.monotonic()
                if left <= 0 or not self._news.wait(left):
                    raise TimeoutError(f"not within {seconds:g} s: {what}; the Secret has {_shown(self.states)}")

    def quiet(self, seconds: float = LIMIT_SECONDS) -> None:
        """Until an agent's pass has gone by without a change: the agent has written all it had to say."""
        deadline = time.monotonic() + seconds
        began = time.monotonic()
        self.read()
        # A pass is a few requests, which take longer on a slow machine.
        window = max(self._period * 2, 20 * (time.monotonic() - began))
        with self._news:
            while self._news.wait(window) and time.monotonic() < deadline:
                pass

    def changes(self, key: str) -> list[str]:
        """The values a key had one after the other."""
        found: list[str] = []
        for state in self.states:
            value = state.get(key, b"").decode()
            if not found or found[-1] != value:
                found.append(value)
        return found

    def close(self) -> None:
        self._over = True

    def _watch(self) -> None:
        version = "0"
        query = f"/api/v1/namespaces/{NAMESPACE}/secrets?watch=1&fieldSelector=metadata.name%3D{self.name}"
        while not self._over:
            try:
                for line in self.server.stream(f"{query}&resourceVersion={version}", timeout=30):
                    event = json.loads(line)
                    if event["type"] == "ERROR":  # too long ago for the server: what was missed is not to be had
                        version = "0"
                    if event["type"] not in ("ADDED", "MODIFIED"):
                        continue
                    version = event["object"]["metadata"]["resourceVersion"]
                    with self._news:
                        self.states.append(_decoded(event["object"]))
                        self._news.notify_all()
                    if self._over:
                        return
            except OSError:
                return
            time.sleep(0.1)  # a watch that ends at once must not cost the machine

    def _account(self) -> str:
        """A token that is good for this Secret alone."""
        access = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [self.name]}
        rule = {**access, "verbs": ["get", "list", "watch", "update", "patch"]}
        rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        named = {"metadata": {"name": self.name}}
        self._do("POST", accounts, named)
        self._do("POST", f"{rights}/roles", {**named, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name}
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": NAMESPACE}
        self._do("POST", f"{rights}/rolebindings", {**named, "roleRef": role, "subjects": [subject]})
        issued = self._do("POST", f"{accounts}/{self.name}/token", {"spec": {"expirationSeconds": 3600}})
        return str(issued["status"]["token"])

    def _do(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        reply = self.server.http(method, path, body, {"Content-Type": content_type} if body is not None else None)
        assert reply.code in (200, 201), reply
        return reply.body


def _decoded(secret: dict[str, Any]) -> Data:
    return {key: base64.b64decode(value or "") for key, value in (secret.get("data") or {}).items()}


def _shown(states: Sequence[Data]) -> str:
    last = states[-1] if states else {}
    return str({key: value[:200] for key, value in last.items() if key not in ("plan", "appliedPlan")})


class Agent:
    """One agent on a host that is a folder of work, history and interlock. It runs from `start` to `stop`."""

    name = ""

    def __init__(self, folder: Path, secret: PlanSecret, log_level: str = "debug") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.secret = secret
        self.log = folder / "agent.log"
        self.config = folder / "config.yaml"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_level = log_level
        connection = folder / "connection.json"
        self._private(
            self.config,
            {
                "workDirectory": str(folder / "work"),
                "preserveWorkDirectory": True,
                "appliedPlanDirectory": str(folder / "applied"),
                "interlockDirectory": str(folder / "interlock"),
                "imagesDirectory": str(folder / "images"),
                "agentRegistriesFile": str(folder / "registries.yaml"),
                "remoteEnabled": True,
                "connectionInfoFile": str(connection),
                **self.settings(),
            },
        )
        (folder / "interlock").mkdir(exist_ok=True)
        server = secret.server
        access = kubeconfig.build(server.url, ca_pem=server.ca_pem, token=secret.token, name="agent", user="agent")
        text = yaml.safe_dump(access)
        self._private(connection, {"kubeConfig": text, "namespace": NAMESPACE, "secretName": secret.name})

    def settings(self) -> dict[str, Any]:
        return {}

    def command(self) -> list[str]:
        raise NotImplementedError

    @staticmethod
    def _private(path: Path, content: dict[str, Any]) -> None:
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))

    def start(self) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "CATTLE_AGENT_CONFIG": str(self.config),
            "CATTLE_LOGLEVEL": self._log_level,
            "CATTLE_AGENT_STRICT_VERIFY": "true",
            "FROM_THE_AGENT": "seen",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                preexec_fn=die_with_parent,
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Without a word, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)

    def said(self) -> str:
        return f"{self.name}:\n{tail(self.log, 40)}"


class SystemAgent(Agent):
    name = "system-agent"

    def command(self) -> list[str]:
        require_root()
        (program,) = require_peer("system-agent")
        return [str(program), "sentinel"]


class RemudaAgent(Agent):
    """From the zipapp hosts download, with a Python that has nothing else."""

    name = "remuda-agent"
    python: str = getattr(sys, "_base_executable", sys.executable)

    def settings(self) -> dict[str, Any]:
        return {"upgrade": False}

    def command(self) -> list[str]:
        program = self.folder / "remuda-agent.pyz"
        if not program.exists():
            program.write_bytes(agent_zipapp())
        return [
            self.python,
            "-I",
            str(program),
            "run",
            "--config",
            str(self.config),
        ]
