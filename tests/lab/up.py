"""`remuda up` as a process, and the objects of machines on it, as a user applies and watches them.

How they are applied and watched is the same on any API server that controllers of ours work on (`Applied`).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from remuda.providers.machine.addresses import ALLOW_LOCAL
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ours import Ours
from tests.lab.server import Server, tail

CAPI = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default"
RKE = "/apis/rke.cattle.io/v1/namespaces/default"
DRIVER_MACHINES = "/apis/rke-machine.cattle.io/v1/namespaces/default"
SECRETS = "/api/v1/namespaces/default/secrets"
DRIVERS = "/apis/management.cattle.io/v3/nodedrivers"

Json = dict[str, Any]


class Applied(Server):
    """An API server, as a user of ours has it. `data` is where the Jobs that are run here keep their hosts, `log` what
    the controllers say."""

    data: Path
    log: Path

    @property
    def hosts(self) -> Path:
        return self.data / "hosts"

    def apply(self, manifest: str) -> None:
        """As `kubectl apply --server-side` does it."""
        for obj in yaml.safe_load_all(manifest):
            path = f"/apis/{obj['apiVersion']}/namespaces/default/{obj['kind'].lower()}s/{obj['metadata']['name']}"
            reply = self.http(
                "PATCH",
                f"{path}?fieldManager=kubectl&force=true",
                json.dumps(obj),
                {"Content-Type": "application/apply-patch+yaml"},
            )
            assert reply.code in (200, 201), reply

    def until(self, path: str, name: str, holds: Callable[[Json], object], *, seconds: float = LIMIT_SECONDS) -> Json:
        """The object as soon as that is true of it, by a watch; {} stands for one that is gone."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            found = self.http("GET", f"{path}/{name}")
            if found.code in (200, 404) and holds(found.body if found.code == 200 else {}):
                return dict(found.body)
            query = f"{path}?watch=1&fieldSelector=metadata.name%3D{name}"
            if found.code == 200:
                query += f"&resourceVersion={found.body['metadata']['resourceVersion']}"
            for line in self.stream(query, timeout=left):
                change = json.loads(line)
                if change["type"] == "ERROR":
                    break
                if holds({} if change["type"] == "DELETED" else change["object"]):
                    return dict(change["object"])
                if time.monotonic() > deadline:
                    break
        raise AssertionError(f"not within {seconds} s: {self.http('GET', f'{path}/{name}')}\n{self.diagnosis}")

    def items(self, path: str) -> list[Json]:
        reply = self.http("GET", path)
        return list(reply.body["items"]) if reply.code == 200 else []

    def names(self, path: str) -> set[str]:
        return {item["metadata"]["name"] for item in self.items(path)}

    def delete(self, path: str, name: str, *, seconds: float = LIMIT_SECONDS) -> None:
        """And waits until it is gone."""
        reply = self.http("DELETE", f"{path}/{name}")
        assert reply.code in (200, 202, 404), reply
        self.until(path, name, lambda obj: not obj, seconds=seconds)

    def follow_plan(self, bootstrap: str, written: Json, *, seconds: float = LIMIT_SECONDS) -> dict[str, str]:
        """Writes a plan by hand, and returns the outputs of its instructions once the host has reported them."""
        plan = json.dumps(written).encode()
        name = f"{bootstrap}-machine-plan"
        patch = {"data": {"plan": base64.b64encode(plan).decode()}}
        reply = self.http("PATCH", f"{SECRETS}/{name}", patch, {"Content-Type": "application/merge-patch+json"})
        assert reply.code == 200, reply
        checksum = base64.b64encode(hashlib.sha256(plan).hexdigest().encode()).decode()
        secret = self.until(
            SECRETS, name, lambda obj: (obj.get("data") or {}).get("applied-checksum") == checksum, seconds=seconds
        )
        saved = json.loads(gzip.decompress(base64.b64decode(secret["data"]["applied-output"])))
        return {key: base64.b64decode(value).decode() for key, value in saved.items()}

    def remuda(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command, as its administrator."""
        return subprocess.run(
            [sys.executable, "-m", "remuda.cli.main", *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            check=False,
        )

    @property
    def diagnosis(self) -> str:
        """State of all objects and the end of the log, for the message of a failed test."""
        kinds = [f"{CAPI}/clusters", f"{CAPI}/machines", f"{RKE}/rkebootstraps", f"{RKE}/custommachines"]
        kinds += [f"{DRIVER_MACHINES}/{driver}machines" for driver in ("nspawn", "existing")]
        seen = [
            f"{path.rpartition('/')[2]} {item['metadata']['name']}: {json.dumps(item.get('status'))}"
            for path in kinds
            for item in self.items(path)
        ]
        pods = "/api/v1/namespaces/default/pods"
        logs = [f"log of {name}: {self.http('GET', f'{pods}/{name}/log').content!r}" for name in self.names(pods)]
        return "\n".join([*seen, *logs, tail(self.log, 40)])


class Up(Ours, Applied):
    command = "up"


def allow_local_addresses(server: Server, driver: str) -> None:
    """Let Jobs of a driver connect to loopback, where tests have what they connect to."""
    patch = {"metadata": {"annotations": {ALLOW_LOCAL: "true"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    reply = server.http("PATCH", f"{DRIVERS}/{driver}", json.dumps(patch), merge)
    assert reply.code == 200, reply


def condition(obj: Json, type: str) -> str:
    found = [one for one in (obj.get("status") or {}).get("conditions") or () if one["type"] == type]
    return str(found[0]["status"]) if found else ""


def eventually(holds: Callable[[], object], otherwise: Callable[[], str], seconds: float = LIMIT_SECONDS) -> None:
    """A look that costs much is made less often: whoever waits leaves the processors to those who are waited for."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if holds():
            return
        assert time.monotonic() < deadline, otherwise()
        time.sleep(min(1.0, max(0.05, 4 * (time.monotonic() - began))))
