"""Life of a machine whose server is a process of this computer, on any API server that a manager works on: it is made,
follows a plan written by hand, is deleted, and leaves nothing. Only Python is needed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from remuda.providers.shared.names import machine_log
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.server import Server

CAPI = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default"
RKE = "/apis/rke.cattle.io/v1/namespaces/default"
MACHINES = "/apis/rke-machine.cattle.io/v1/namespaces/default/processmachines"
SECRETS = "/api/v1/namespaces/default/secrets"
DRIVERS = "/apis/management.cattle.io/v3/nodedrivers"
EXAMPLE = Path(__file__).parents[2] / "examples" / "machine.yaml"
_APPLY = {"Content-Type": "application/apply-patch+yaml"}
_MERGE = {"Content-Type": "application/merge-patch+json"}

Json = dict[str, Any]


class ProcessMachines:
    """The Cluster of examples/machine.yaml and its machines. The job runner keeps their hosts in `hosts`."""

    def __init__(self, server: Server, hosts: Path, log: Callable[[], str]) -> None:
        self.server = server
        self.hosts = hosts
        self._log = log

    # -- the scenario -----------------------------------------------------------------------------------------------

    def apply_example(self) -> None:
        """As its comments say, and as soon as its kinds are there."""
        self.until(DRIVERS, "process", lambda driver: condition(driver, "Active") == "True")
        for obj in yaml.safe_load_all(EXAMPLE.read_text()):
            metadata = obj["metadata"]
            path = f"/apis/{obj['apiVersion']}/namespaces/{metadata['namespace']}/{obj['kind'].lower()}s"
            reply = self.server.http("PATCH", f"{path}/{metadata['name']}?fieldManager=test", json.dumps(obj), _APPLY)
            assert reply.code == 201, reply

    def becomes_a_host(self, name: str) -> None:
        self.until(f"{RKE}/rkebootstraps", name, lambda obj: condition(obj, "AgentConnected") == "True")
        machine = self.until(MACHINES, name, lambda obj: initialized(obj, "provisioned"))
        provider_id = machine["spec"]["providerID"]
        assert provider_id.startswith("process://")
        self.until(f"{CAPI}/machines", name, lambda obj: obj["spec"].get("providerID") == provider_id)
        assert any("remuda-agent" in command for command in self.processes())

    def follows_a_plan(self, name: str) -> None:
        written, secret = plan(), f"{name}-machine-plan"
        patch = {"data": {"plan": base64.b64encode(written).decode()}}
        reply = self.server.http("PATCH", f"{SECRETS}/{secret}", patch, _MERGE)
        assert reply.code == 200, reply
        checksum = base64.b64encode(hashlib.sha256(written).hexdigest().encode()).decode()
        found = self.until(SECRETS, secret, lambda obj: (obj.get("data") or {}).get("applied-checksum") == checksum)
        assert output(found, "look") == "the grass is green\n"

    def delete_machine(self, name: str) -> None:
        assert self.server.http("DELETE", f"{CAPI}/machines/{name}").code == 200
        self.eventually(
            lambda: self.server.http("GET", f"{CAPI}/machines/{name}").code == 404, f"Machine {name} is left"
        )

    def has_nothing_left(self, name: str) -> None:
        self.eventually(lambda: not self.processes(), "processes are left")
        assert list(self.hosts.glob("*/root")) == list(self.hosts.glob("*/*/root")) == []
        self.eventually(lambda: not self.items(MACHINES) + self.items(f"{RKE}/rkebootstraps"), "objects are left")
        # Garbage collection on Kubernetes learns of new kinds every half minute.
        self.eventually(lambda: not self._left(name), "something is left")

    def _left(self, name: str) -> list[str]:
        """Return the objects named after a machine, except its log, which is kept until its Cluster is deleted."""
        return [
            f"{item['kind']} {found}"
            for path in _OF_MACHINES
            for item in self.items(path)
            if name in (found := item["metadata"]["name"]) and found != machine_log(name)
        ]

    def clear(self) -> None:
        """Whatever became of a test, no host outlives it."""
        for item in self.items(f"{CAPI}/machines"):
            self.server.http("DELETE", f"{CAPI}/machines/{item['metadata']['name']}")
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)

    # -- looking -------------------------------------------------------------------------------------------------

    def until(self, path: str, name: str, holds: Callable[[Json], object], *, seconds: float = LIMIT_SECONDS) -> Json:
        """The object as soon as that is true of it, by a watch."""
        deadline = time.monotonic() + seconds
        query = f"{path}?watch=1&fieldSelector=metadata.name%3D{name}"
        while (left := deadline - time.monotonic()) > 0:
            for line in self.server.stream(query, timeout=left):
                change = json.loads(line)
                if change["type"] in ("ADDED", "MODIFIED") and holds(change["object"]):
                    return dict(change["object"])
                if time.monotonic() > deadline:
                    break
        raise AssertionError(f"not within {seconds} s: {self.server.http('GET', f'{path}/{name}')}\n{self.diagnosis}")

    def eventually(self, holds: Callable[[], object], otherwise: str, seconds: float = LIMIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"{otherwise}\n{self.diagnosis}"
            time.sleep(0.05)

    @property
    def diagnosis(self) -> str:
        """State of all objects and the end of the log, for the message of a failed test."""
        seen = [
            f"{item['kind']} {item['metadata']['name']}: {json.dumps(item.get('status'))}"
            for path in (f"{CAPI}/clusters", f"{CAPI}/machines", f"{RKE}/rkebootstraps", MACHINES)
            for item in self.items(path)
        ]
        left = [f"{item['kind']} {item['metadata']['name']}" for path in _OF_MACHINES for item in self.items(path)]
        return "\n".join([*seen, f"there are {', '.join(left)}", f"processes: {self.processes()}", self._log()])

    def items(self, path: str) -> list[Json]:
        reply = self.server.http("GET", path)
        if reply.code != 200:
            return []
        kind = str(reply.body["kind"]).removesuffix("List")
        return [{"kind": kind, **item} for item in reply.body["items"]]

    def processes(self) -> list[str]:
        """Of the hosts, whoever started them."""
        return processes_below(self.hosts)


def processes_below(hosts: Path) -> list[str]:
    """Of hosts that are processes of this machine, with their roots below that folder."""
    mark = f"REMUDA_HOST_ROOT={hosts}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


_OF_MACHINES = (
    "/apis/batch/v1/jobs",
    *(f"/api/v1/{plural}" for plural in ("pods", "secrets", "serviceaccounts", "configmaps")),
    *(f"/apis/rbac.authorization.k8s.io/v1/{plural}" for plural in ("roles", "rolebindings")),
)


def condition(obj: Json, type: str) -> str:
    found = [one for one in (obj.get("status") or {}).get("conditions") or () if one["type"] == type]
    return str(found[0]["status"]) if found else ""


def initialized(obj: Json, what: str) -> bool:
    return bool(((obj.get("status") or {}).get("initialization") or {}).get(what))


def plan() -> bytes:
    look = 'echo "the grass is $(cat "$REMUDA_HOST_ROOT/etc/prairie/grass")"'
    return json.dumps(
        {
            "files": [{"path": "/etc/prairie/grass", "content": base64.b64encode(b"green").decode()}],
            "instructions": [{"name": "look", "command": "/bin/sh", "args": ["-c", look], "saveOutput": True}],
        }
    ).encode()


def output(secret: Json, name: str) -> str:
    saved = json.loads(gzip.decompress(base64.b64decode(secret["data"]["applied-output"])))
    return base64.b64decode(saved[name]).decode()
