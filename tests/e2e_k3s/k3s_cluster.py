"""A cluster of real k3s on hosts in systemd-nspawn: what etcd and kubelets say themselves.

What is special about these hosts is in examples/k3s-nspawn.yaml, as any user writes it: here it is taken from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from remuda.app.log_setup import AUDIT_FILE
from tests.e2e_k3s.images import PAUSE
from tests.lab.cluster_on_hosts import ClusterOnHosts
from tests.lab.clusters import NAMESPACE, Fleet
from tests.lab.hosts import require_hosts
from tests.lab.kubectl import Kubectl
from tests.lab.missing import missing
from tests.lab.tunnels import Tunnels
from tests.lab.up import Json

ROOT = Path(__file__).parents[2]
# One source under two names.
VERSION, NEWER = (ROOT / "interop/k3s/versions").read_text().split()
SERVERS, WORKERS = "servers", "workers"
PATIENCE_SECONDS = 1800.0  # four kubelets and three members of etcd, on processors that others use too

PLUGINS = "/usr/lib/cni"  # of Debian's containernetworking-plugins
NAME = "pasture"
_EXAMPLE: dict[str, Json] = {
    obj["kind"]: obj for obj in yaml.safe_load_all((ROOT / "examples/k3s-nspawn.yaml").read_text())
}
_ABOUT_ITSELF = ("apiVersion", "kind", "metadata")
PLACE = {key: value for key, value in _EXAMPLE["NspawnConfig"].items() if key not in _ABOUT_ITSELF}
FILES: Json = _EXAMPLE["ConfigMap"]
FILES["metadata"]["annotations"] = dict.fromkeys(FILES["metadata"]["annotations"], NAME)
_INSTANCES, _INSTANCES_WANTED = Path("/proc/sys/fs/inotify/max_user_instances"), 1024
_ETCD = "/var/lib/rancher/k3s/server/tls/etcd"
_CURL = "curl --silent --show-error --fail --max-time 10 --retry 5 --retry-all-errors"  # a leader may just be elected


def needed() -> Json:
    """Of rkeConfig. There is no registry: what a sandbox is made of comes with the artefacts."""
    config = deepcopy(_EXAMPLE["Cluster"]["spec"]["rkeConfig"])
    del config["machinePools"]
    config["machineGlobalConfig"] |= {"pause-image": PAUSE, "kubelet-arg": []}
    return config


@contextmanager
def room_for_watches() -> Iterator[None]:
    """Hosts have one kernel, and all of them are root to it: of the 128 instances of inotify that root usually has,
    a server of k3s and its host take 25, and a kubelet that gets none does not start. So there are more for a while."""
    before = _INSTANCES.read_text()
    if int(before) < _INSTANCES_WANTED:
        _INSTANCES.write_text(str(_INSTANCES_WANTED))
    try:
        yield
    finally:
        _INSTANCES.write_text(before)


def require_packages() -> None:
    """What hosts need of Debian beside what every host does, or the end of this test."""
    require_hosts()
    absent = [name for name in ("conntrack", "socat", "zstd", f"{PLUGINS}/bridge") if shutil.which(name) is None]
    if absent:
        missing(f"hosts of k3s need {', '.join(absent)}; install with: interop/packages k3s")


class K3sCluster(ClusterOnHosts):
    def __init__(self, fleet: Fleet, tunnels: Tunnels, pools: list[Json], network: Json) -> None:
        super().__init__(fleet, NAME, pools, {**PLACE, **network}, **needed())
        self.version = VERSION
        self._tunnels = tunnels
        reply = fleet.http("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", FILES)
        assert reply.code == 201, reply

    def has_linked_nodes(self, number: int) -> dict[str, Json]:
        """As `has_nodes`, with the patience it takes; and every Node is linked to its Machine."""
        nodes = self.has_nodes(number, PATIENCE_SECONDS)

        def are_linked() -> bool:
            nodes.update(self.nodes())
            machines = [one for one in self.machines().values() if "nodeRef" in one["status"]]
            linked = {one["status"]["nodeRef"]["name"]: one["spec"]["providerID"] for one in machines}
            return linked == {name: node["spec"].get("providerID") for name, node in nodes.items()}

        self.waits(are_linked, "every Node is linked to its Machine")
        return nodes

    def members(self) -> set[str]:
        """The Nodes whose members vote, as etcd itself says on one server; and on each it says that it is well."""
        servers = sorted(self.machines(SERVERS))
        for server in servers:
            self.waits(lambda server=server: self._is_healthy(server), f"the member of {server} says that it is well")
        files = f"--cacert {_ETCD}/server-ca.crt --cert {_ETCD}/client.crt --key {_ETCD}/client.key"
        asked = f"{_CURL} {files} https://127.0.0.1:2382/v3/cluster/member/list --data '{{\"linearizable\": true}}'"
        listed = json.loads(self.run(servers[0], asked))["members"]
        assert not [one for one in listed if one.get("isLearner")], listed
        return {str(one["name"]).rpartition("-")[0] for one in listed}

    def _is_healthy(self, server: str) -> bool:
        try:
            said = json.loads(self.run(server, f"{_CURL} http://127.0.0.1:2381/health"))
        except AssertionError:  # it does not answer, or answers that it is not well
            return False
        return bool(said["health"] == "true")

    def has_members(self) -> None:
        """etcd has one member for each server, and no other."""
        assert self.members() == {self.node_of(name) for name in self.machines(SERVERS)}

    def has_tunnels(self) -> None:
        """Every server has one to the manager, and nobody else."""
        self.waits(lambda: self.connected() == {*self.machines(SERVERS)}, "every server has a tunnel, and no other")

    def connected(self) -> set[str]:
        """The Machines with a tunnel, as the manager says."""
        return {name.partition(":")[2] for name in self._tunnels.open()}

    def carrier(self, kubectl: Kubectl) -> str:
        """The server whose tunnel an answer has come through, one that is longer than all else that comes meanwhile."""
        before = self._tunnels.received()
        self.waits(lambda: kubectl.works("get", "--raw", "/openapi/v2"), "it is answered")
        came = {name: number - before.get(name, 0) for name, number in self._tunnels.received().items()}
        return max(came, key=lambda name: came[name]).partition(":")[2]

    def audited(self, user: str) -> list[Json]:
        """What the manager has noted of a user's requests that have ended."""
        path = self.fleet.data / AUDIT_FILE
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last line may be incomplete
        return [line for line in map(json.loads, whole.splitlines()) if line["user"] == user]

    def waits(self, holds: Any, what: str) -> None:
        self.until(holds, what, PATIENCE_SECONDS)
