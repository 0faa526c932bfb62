"""Clusters as their users declare them, on `remuda up` as a process: one manifest each, whatever driver makes hosts,
and whatever API server and core they are declared on (`ManagementServer`).

What must hold of each of them is here too: a change in place keeps the Machines and their hosts, and of a cluster that
was deleted nothing is left: no object, no server, no process.
"""

from __future__ import annotations

import base64
import copy
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remuda.providers.controlplane.artefacts import Artefacts, nano_bundles
from remuda.providers.shared.drivers.proc import HostProcesses
from remuda.provisioning.pools import POOL_NAME
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.process_machines import processes_below
from tests.lab.server import Reply, Server, tail
from tests.lab.up import DRIVERS, Applied, Json, Up, condition, eventually

NAMESPACE = "fleet-default"
VERSION, NEWER = "v1.36.4+nano1", "v1.36.5+nano1"
_ANSWER_SECONDS = 30.0  # of a host that may be frozen or cut off; its callers ask again
PATIENCE_SECONDS = 2 * LIMIT_SECONDS  # a whole cluster is made, changed or deleted

PROVISIONING = f"/apis/provisioning.cattle.io/v1/namespaces/{NAMESPACE}/clusters"
MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/machines"
DEPLOYMENTS = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/machinedeployments"
SETS = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/machinesets"
CONTROL_PLANES = f"/apis/rke.cattle.io/v1/namespaces/{NAMESPACE}/rkecontrolplanes"
PODS = "/api/v1/namespaces/default/pods"  # of the workload cluster, as BUDGETS
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
FLEET_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"

_APPLY = {"Content-Type": "application/apply-patch+yaml"}
_COME_AND_GO = ("events", "leases", "selfsubjectaccessreviews")


class MachineIdentity(NamedTuple):
    """Identity of a Machine and of its host: another one in their place has another identity."""

    machine: str
    infrastructure: str
    provider_id: str


class ManagementServer(Applied):
    """API server on which clusters are declared, with the objects of these clusters."""

    folder: Path
    driver: str
    options: dict[str, Any]

    def add_nano(self, folder: Path, *versions: str) -> None:
        store = Artefacts(self.data / "artefacts")
        for version in versions:
            made = folder / f"{version}.tar.gz"
            nano_bundles.build(version, made)
            store.add("nano", version, nano_bundles.architecture(), {nano_bundles.NAME: made})

    def put(self, obj: Json) -> Reply:
        """As `kubectl apply --server-side`, in the namespace of clusters."""
        place = f"/apis/{obj['apiVersion']}/namespaces/{NAMESPACE}/{obj['kind'].lower()}s/{obj['metadata']['name']}"
        return self.http("PATCH", f"{place}?fieldManager=kubectl&force=true", json.dumps(obj), _APPLY)

    def patch(self, path: str, change: Json) -> None:
        reply = self.http("PATCH", path, json.dumps(change), {"Content-Type": "application/merge-patch+json"})
        assert reply.code == 200, reply

    def everything(self) -> set[str]:
        """Every object there is, but for what comes and goes by itself."""
        found = set()
        for path in self.collections():
            for item in self.items(path):
                meta = item["metadata"]
                found.add(f"{path.rpartition('/')[2]} {meta.get('namespace', '')}/{meta['name']}")
        return found

    def collections(self) -> list[str]:
        groups = self.http("GET", "/apis").body["groups"]
        bases = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        return [
            f"{base}/{resource['name']}"
            for base in bases
            for resource in self.http("GET", base).body["resources"]
            if "list" in resource["verbs"] and resource["name"] not in _COME_AND_GO
        ]

    def has_no_leaks(self) -> None:
        """Asked where its hosts are: the API server of a Kubernetes does not know of them."""
        leaks = self.remuda("leaks", "--hosts", str(self.hosts))
        assert (leaks.returncode, leaks.stdout) == (0, ""), leaks

    def processes(self) -> list[str]:
        """Of the hosts, whoever started them."""
        return processes_below(self.hosts)

    @property
    def diagnosis(self) -> str:
        described = [self.remuda("describe", "cluster", name, "-n", NAMESPACE) for name in self.names(PROVISIONING)]
        said = [one.stdout + one.stderr for one in described]
        return "\n".join([*said, f"processes of hosts: {self.processes()}", tail(self.log, 60)])

    def stop(self) -> None:
        """With the hosts of tests that did not come to their end."""
        roots = list(self.hosts.glob("process/*/root"))
        super().stop()
        for root in roots:
            HostProcesses(root).end(hard=True)
        shutil.rmtree(self.folder, ignore_errors=True)  # also what they have written to the end


class Fleet(ManagementServer, Up):
    """`remuda up`, and the clusters declared on it."""

    def __init__(self, driver: str = "process", options: Mapping[str, Any] | None = None, *flags: str) -> None:
        super().__init__(*flags)
        self.driver, self.options = driver, dict(options or {})
        self.until(DRIVERS, driver, lambda obj: condition(obj, "Active") == "True")

    def has_no_leaks(self) -> None:
        """Asked of the server, which knows where its hosts are."""
        leaks = self.remuda("leaks")
        assert (leaks.returncode, leaks.stdout) == (0, ""), leaks
        assert f"{self.driver} in {self.hosts}" in leaks.stderr


class DeclaredCluster:
    """A cluster by its manifest. Change `config` or `pools` and `apply`."""

    def __init__(self, fleet: ManagementServer, name: str, pools: Sequence[Json], **config: Any) -> None:
        self.fleet, self.name = fleet, name
        self.before = fleet.everything()
        self.version = VERSION
        self.config: Json = config
        self.pools: dict[str, Json] = {one["name"]: dict(one) for one in pools}
        self.outside: Json = {}  # of the spec, beside rkeConfig
        self.annotations: dict[str, str] = {}

    def manifest(self) -> Json:
        kind = f"{self.fleet.driver.capitalize()}Config"
        pools = [
            {**one, "machineConfigRef": {"kind": kind, "name": f"{self.name}-{one['name']}"}}
            for one in self.pools.values()
        ]
        rke = {**copy.deepcopy(self.config), **({"machinePools": pools} if pools else {})}
        return {
            "apiVersion": "provisioning.cattle.io/v1",
            "kind": "Cluster",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": self.annotations},
            "spec": {"kubernetesVersion": self.version, **self.outside, "rkeConfig": rke},
        }

    def offer(self) -> Reply:
        """What the server says to the manifest, with all it names beside it."""
        for pool in self.pools:
            config = {
                "apiVersion": "rke-machine-config.cattle.io/v1",
                "kind": f"{self.fleet.driver.capitalize()}Config",
                "metadata": {"name": f"{self.name}-{pool}", "namespace": NAMESPACE},
                **self.fleet.options,
            }
            reply = self.fleet.put(config)
            assert reply.code in (200, 201), reply
        return self.fleet.put(self.manifest())

    def apply(self) -> None:
        reply = self.offer()
        assert reply.code in (200, 201), reply

    # --- waits

    def becomes_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        """As its manifest is now."""
        self.fleet.until(PROVISIONING, self.name, _settled, seconds=seconds)
        self.fleet.until(CONTROL_PLANES, self.name, _settled, seconds=seconds)

    def until(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        eventually(holds, lambda: f"not within {seconds} s: {what}\n{self.fleet.diagnosis}", seconds)

    def has_nodes(self, number: int, seconds: float = PATIENCE_SECONDS) -> dict[str, Json]:
        """So many Machines and Nodes, all of them Ready, and the cluster is, too."""

        def complete() -> bool:
            nodes = self.nodes()
            return len(nodes) == len(self.machines()) == number and all(map(is_ready, nodes.values()))

        self.until(complete, f"{self.name} has {number} Nodes, and all are Ready", seconds)
        self.becomes_ready(seconds)
        return self.nodes()

    def is_well(self, seconds: float = PATIENCE_SECONDS) -> None:
        """All that belongs to it says so, to whom asks why it is not ready."""
        self.until(lambda: self.why() == (0, f"Cluster {self.name} is ready\n"), "remuda why says it is ready", seconds)

    # --- looks

    def machines(self, pool: str = "") -> dict[str, Json]:
        wanted = {"cluster.x-k8s.io/cluster-name": self.name} | ({POOL_NAME: pool} if pool else {})
        query = "%2C".join(f"{key}%3D{value}" for key, value in wanted.items())
        return {one["metadata"]["name"]: one for one in self.fleet.items(f"{MACHINES}?labelSelector={query}")}

    def identities(self, pool: str = "") -> dict[str, MachineIdentity]:
        """Who is there: equal before and after, no machine was replaced."""
        found = {}
        for name, machine in self.machines(pool).items():
            ref = machine["spec"]["infrastructureRef"]
            path = f"/apis/{ref['apiGroup']}/v1/namespaces/{NAMESPACE}/{ref['kind'].lower()}s/{ref['name']}"
            uid = self.fleet.http("GET", path).body["metadata"]["uid"]
            found[name] = MachineIdentity(machine["metadata"]["uid"], uid, machine["spec"].get("providerID", ""))
        return found

    def node_of(self, machine: str) -> str:
        return str(self.machines()[machine]["status"]["nodeRef"]["name"])

    def workload(self) -> Server:
        """The cluster's own API, past any proxy."""
        secret = self.fleet.http("GET", f"{FLEET_SECRETS}/{self.name}-kubeconfig-admin")
        if secret.code == 404:
            secret = self.fleet.http("GET", f"{FLEET_SECRETS}/{self.name}-kubeconfig")
        if secret.code != 200 or b"/k8s/clusters/" in base64.b64decode(secret.body["data"]["value"]):
            raise ConnectionError(f"{self.name} has no kubeconfig yet")
        path = self.fleet.folder / f"{self.name}.kubeconfig"
        path.write_bytes(base64.b64decode(secret.body["data"]["value"]))
        return Server(path, answer_seconds=_ANSWER_SECONDS)

    def ask(self, method: str, path: str, body: Json | None = None, seconds: float = LIMIT_SECONDS) -> Reply:
        """One request to the cluster's own API; asked again while it cannot be reached or does not serve."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                server = self.workload()
                try:
                    reply = server.http(method, path, body)
                finally:
                    server.stop()
                if reply.code < 500 or time.monotonic() > deadline:
                    return reply
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def nodes(self) -> dict[str, Json]:
        try:
            server = self.workload()
            reply = server.http("GET", "/api/v1/nodes")
            server.stop()
        except OSError:
            return {}
        return {one["metadata"]["name"]: one for one in reply.body["items"]} if reply.code == 200 else {}

    def run_guarded_pod(self, name: str, node: str) -> None:
        """Run a Pod on the Node, with a budget that refuses its eviction until the budget is deleted."""
        pod: Json = {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": node, "containers": [{"name": name, "image": name}]},
        }
        budget: Json = {
            "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
        }
        for path, obj in ((PODS, pod), (BUDGETS, budget)):
            reply = self.ask("POST", path, obj)
            assert reply.code in (201, 409), reply  # 409 when an earlier attempt was carried out and its answer lost

        def running() -> bool:
            return bool((self.ask("GET", f"{PODS}/{name}").body.get("status") or {}).get("phase") == "Running")

        self.until(running, f"Pod {name} runs: an eviction asks no budget before that")

    def why(self) -> tuple[int, str]:
        done = self.fleet.remuda("why", self.name, "-n", NAMESPACE)
        return done.returncode, done.stdout

    # --- its end

    def delete(self, seconds: float = PATIENCE_SECONDS) -> None:
        self.fleet.delete(PROVISIONING, self.name, seconds=seconds)

    def leaves_nothing(self, seconds: float = LIMIT_SECONDS) -> None:
        eventually(
            lambda: not self.fleet.everything() - self.before,
            lambda: f"left of {self.name}: {sorted(self.fleet.everything() - self.before)}\n{self.fleet.diagnosis}",
            seconds,
        )
        own = self.fleet.hosts / self.fleet.driver / f"{self.name}-"
        self.until(lambda: not processes_below(own), "no process is left", seconds)
        assert [path for path in self.fleet.hosts.glob("*/*") if self.name in path.name] == []
        self.fleet.has_no_leaks()


def pool(name: str, quantity: int, roles: str, **more: Any) -> Json:
    """Roles by their letters: e, c, w."""
    flags = {"e": "etcdRole", "c": "controlPlaneRole", "w": "workerRole"}
    return {"name": name, "quantity": quantity, **{flags[letter]: True for letter in roles}, **more}


def is_ready(obj: Json) -> bool:
    return condition(obj, "Ready") == "True"


def _settled(obj: Json) -> bool:
    observed = (obj.get("status") or {}).get("observedGeneration")
    return is_ready(obj) and observed == obj["metadata"]["generation"]
