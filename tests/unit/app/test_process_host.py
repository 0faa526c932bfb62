"""The whole story of one machine, as its user sees it: `remuda up` as a process, a Machine whose server is a process of
this computer, a plan written by hand; and nothing of it left when the Machine is deleted. Only Python is needed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.ours import Ours
from tests.lab.server import tail

CAPI = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default"
RKE = "/apis/rke.cattle.io/v1/namespaces/default"
MACHINES = "/apis/rke-machine.cattle.io/v1/namespaces/default/processmachines"
SECRETS = "/api/v1/namespaces/default/secrets"
DRIVERS = "/apis/management.cattle.io/v3/nodedrivers"

Json = dict[str, Any]


class Up(Ours):
    command = "up"

    def apply(self, path: str, kind: str, api_version: str, name: str, spec: Json, **metadata: Any) -> Json:
        obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
        reply = self.http("POST", path, obj)
        assert reply.code == 201, reply
        return dict(reply.body)

    def until(self, path: str, name: str, holds: Callable[[Json], object], *, seconds: float = 20) -> Json:
        """The object as soon as that is true of it, by a watch."""
        deadline = time.monotonic() + seconds
        query = f"{path}?watch=1&fieldSelector=metadata.name%3D{name}"
        while (left := deadline - time.monotonic()) > 0:
            for line in self.stream(query, timeout=left):
                change = json.loads(line)
                if change["type"] != "ERROR" and holds({} if change["type"] == "DELETED" else change["object"]):
                    return dict(change["object"])
                if time.monotonic() > deadline:
                    break
        raise AssertionError(f"not within {seconds} s: {self.http('GET', f'{path}/{name}')}\n{self.told}")

    @property
    def told(self) -> str:
        """What a person would look at."""
        seen = [
            f"{item['kind']} {item['metadata']['name']}: {json.dumps(item.get('status'))}"
            for path in (f"{CAPI}/clusters", f"{CAPI}/machines", f"{RKE}/rkebootstraps", MACHINES)
            for item in self.items(path)
        ]
        logs = [
            f"log of {item['metadata']['name']}: "
            + str(self.http("GET", f"/api/v1/namespaces/default/pods/{item['metadata']['name']}/log").content)
            for item in self.items("/api/v1/namespaces/default/pods")
        ]
        return "\n".join([*seen, *logs, tail(self.log, 40)])

    def items(self, path: str) -> list[Json]:
        reply = self.http("GET", path)
        if reply.code != 200:
            return []
        kind = str(reply.body["kind"]).removesuffix("List")
        return [{"kind": kind, **item} for item in reply.body["items"]]

    @property
    def hosts(self) -> Path:
        return self.data / "hosts"

    def processes(self) -> list[str]:
        """Of hosts of this server, whoever started them."""
        mark = f"REMUDA_HOST_ROOT={self.hosts}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes():
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                except OSError:
                    continue
        return found


@pytest.fixture
def up() -> Iterator[Up]:
    server = Up()
    try:
        yield server
    finally:
        for item in server.items(f"{CAPI}/machines"):  # a test that failed leaves no host behind
            server.http("DELETE", f"{CAPI}/machines/{item['metadata']['name']}")
        deadline = time.monotonic() + 15
        while server.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        server.stop()


def condition(obj: Json, type: str) -> str:
    found = [one for one in (obj.get("status") or {}).get("conditions") or () if one["type"] == type]
    return str(found[0]["status"]) if found else ""


def initialized(obj: Json, what: str) -> bool:
    return bool(((obj.get("status") or {}).get("initialization") or {}).get(what))


def make(up: Up, name: str) -> None:
    owner = {"cluster.x-k8s.io/cluster-name": "prairie"}
    up.apply(f"{RKE}/rkeclusters", "RKECluster", "rke.cattle.io/v1", "prairie", {})
    ref = {"apiGroup": "rke.cattle.io", "kind": "RKECluster", "name": "prairie"}
    up.apply(f"{CAPI}/clusters", "Cluster", "cluster.x-k8s.io/v1beta2", "prairie", {"infrastructureRef": ref})
    up.until(DRIVERS, "process", lambda driver: condition(driver, "Active") == "True")
    up.apply(MACHINES, "ProcessMachine", "rke-machine.cattle.io/v1", name, {}, labels=owner)
    up.apply(f"{RKE}/rkebootstraps", "RKEBootstrap", "rke.cattle.io/v1", name, {"clusterName": "prairie"}, labels=owner)
    spec = {
        "clusterName": "prairie",
        "bootstrap": {"configRef": {"apiGroup": "rke.cattle.io", "kind": "RKEBootstrap", "name": name}},
        "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "ProcessMachine", "name": name},
    }
    up.apply(f"{CAPI}/machines", "Machine", "cluster.x-k8s.io/v1beta2", name, spec, labels=owner)


def plan() -> bytes:
    return json.dumps(
        {
            "files": [{"path": "/etc/prairie/grass", "content": base64.b64encode(b"green").decode()}],
            "instructions": [
                {
                    "name": "look",
                    "command": "/bin/sh",
                    "args": ["-c", 'echo "the grass is $(cat "$REMUDA_HOST_ROOT/etc/prairie/grass")"'],
                    "saveOutput": True,
                }
            ],
        }
    ).encode()


def test_a_machine_becomes_a_managed_host_and_nothing_of_it_is_left(up: Up) -> None:
    before = {item["metadata"]["name"] for item in up.items(SECRETS)}
    make(up, "horse")
    up.until(f"{RKE}/rkebootstraps", "horse", lambda obj: condition(obj, "AgentConnected") == "True")
    machine = up.until(MACHINES, "horse", lambda obj: initialized(obj, "provisioned"))
    assert machine["spec"]["providerID"].startswith("process://")
    up.until(f"{CAPI}/machines", "horse", lambda obj: obj["spec"].get("providerID") == machine["spec"]["providerID"])
    assert any("remuda-agent" in command for command in up.processes())

    written = plan()
    patch = {"data": {"plan": base64.b64encode(written).decode()}}
    name = "horse-machine-plan"
    reply = up.http("PATCH", f"{SECRETS}/{name}", patch, {"Content-Type": "application/merge-patch+json"})
    assert reply.code == 200, reply
    checksum = base64.b64encode(hashlib.sha256(written).hexdigest().encode()).decode()
    secret = up.until(SECRETS, name, lambda obj: (obj.get("data") or {}).get("applied-checksum") == checksum)
    assert output(secret, "look") == "the grass is green\n"

    assert up.http("DELETE", f"{CAPI}/machines/horse").code == 200
    up.until(f"{CAPI}/machines", "horse", lambda obj: not obj, seconds=30)
    eventually(lambda: not up.processes(), lambda: f"still running: {up.processes()}")
    assert list(up.hosts.glob("*/root")) == []
    assert up.items(MACHINES) == up.items(f"{RKE}/rkebootstraps") == []
    eventually(
        lambda: not up.items("/apis/batch/v1/jobs") and not up.items("/api/v1/pods"), lambda: "a Job or Pod is left"
    )
    eventually(lambda: _of_machines(up) <= before, lambda: f"Secrets left: {_of_machines(up) - before}")


def _of_machines(up: Up) -> set[str]:
    return {item["metadata"]["name"] for item in up.items(SECRETS) if "horse" in item["metadata"]["name"]}


def eventually(holds: Callable[[], object], otherwise: Callable[[], str], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)


def output(secret: Json, name: str) -> str:
    saved = json.loads(gzip.decompress(base64.b64decode(secret["data"]["applied-output"])))
    return base64.b64decode(saved[name]).decode()
