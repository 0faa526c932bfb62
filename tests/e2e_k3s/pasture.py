"""A cluster of real k3s on hosts in systemd-nspawn: what such hosts need, and what etcd and kubelets say themselves.

Everything that is special about these hosts is in `needed`, in the manifest, as any user could write it:

- their root is an overlay, on which containerd cannot lay another: its snapshots are plain copies;
- their control groups are mounted to be read only: before k3s starts, those of the host are made writable;
- the machine below may not let a sandbox be spared when memory ends: containerd asks for no more than it may have;
- settings of the kernel belong to the machine below: kubelet finds files with what it wants in their place, kube-proxy
  leaves them alone;
- flannel's plugin is in no package: pods have a bridge on each host, and reach those of no other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e_k3s.images import PAUSE
from tests.lab.clusters import NAMESPACE, Fleet
from tests.lab.hosts import require_hosts
from tests.lab.kubectl import Kubectl
from tests.lab.missing import missing
from tests.lab.on_hosts import OnHosts
from tests.lab.tunnels import Tunnels
from tests.lab.up import Json

# One source under two names.
VERSION, NEWER = (Path(__file__).parents[2] / "interop/k3s/versions").read_text().split()
SERVERS, WORKERS = "servers", "workers"
PATIENCE_SECONDS = 900.0  # four kubelets and three members of etcd, on processors that others use too

PLUGINS = "/usr/lib/cni"  # of Debian's containernetworking-plugins
PLACE = {"binds": ["/dev/kmsg"], "systemCalls": ["add_key", "keyctl", "bpf"]}
_PREPARE = """\
# What k3s cannot do itself on such a host: write below its control groups, and read the kernel as it wants it.
for group in /sys/fs/cgroup/*/; do mount -o remount,bind,rw "$group"; done
for wanted in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \\
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=/run/kernel/${wanted%=*}
  [ ! -e "$file" ] || continue
  mkdir -p "${file%/*}"
  echo "${wanted#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${wanted%=*}"
done
"""
_DROP_IN = "[Service]\nExecStartPre=-/bin/sh /usr/local/lib/pasture/prepare\n"
_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pasture",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.42.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
_CONTAINERD = f"""\
version = 2
[plugins."io.containerd.internal.v1.opt"]
path = "{{{{ .NodeConfig.Containerd.Opt }}}}"
[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"
stream_server_port = "10010"
sandbox_image = "{{{{ .NodeConfig.AgentConfig.PauseImage }}}}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{{{{ .NodeConfig.AgentConfig.Snapshotter }}}}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
_FILES = {
    "containerd": ("/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl", _CONTAINERD),
    "prepare": ("/usr/local/lib/pasture/prepare", _PREPARE),
    "unit": ("/etc/systemd/system/k3s.service.d/hosts.conf", _DROP_IN),
    "agent-unit": ("/etc/systemd/system/k3s-agent.service.d/hosts.conf", _DROP_IN),
    "network": ("/etc/cni/net.d/10-pasture.conflist", json.dumps(_NETWORK)),
}
FILES: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "pasture-hosts",
        "namespace": NAMESPACE,
        "annotations": {"rke.cattle.io/object-authorized-for-clusters": "pasture"},
    },
    "data": {key: content for key, (_, content) in _FILES.items()},
}
_INSTANCES, _INSTANCES_WANTED = Path("/proc/sys/fs/inotify/max_user_instances"), 1024
_ETCD = "/var/lib/rancher/k3s/server/tls/etcd"
_ETCD_SECONDS = 180
_CURL = "curl --silent --show-error --fail --max-time 10 --retry 5 --retry-all-errors"  # a leader may just be elected


def needed() -> Json:
    """Of rkeConfig."""
    return {
        "machineGlobalConfig": {
            "disable": ["coredns", "local-storage", "metrics-server", "servicelb", "traefik"],
            "disable-helm-controller": True,
            "disable-network-policy": True,
            "flannel-backend": "none",
            "snapshotter": "native",
            "pause-image": PAUSE,
            "kubelet-arg": [],
            "kube-proxy-arg": ["conntrack-max-per-core=0"],
        },
        "machineSelectorFiles": [
            {
                "fileSources": [
                    {
                        "configMap": {
                            "name": FILES["metadata"]["name"],
                            "items": [{"key": key, "path": path} for key, (path, _) in _FILES.items()],
                        }
                    }
                ]
            }
        ],
        "etcd": {"disableSnapshots": True},
    }


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


class Pasture(OnHosts):
    def __init__(self, fleet: Fleet, tunnels: Tunnels, pools: list[Json], network: Json) -> None:
        super().__init__(fleet, "pasture", pools, {**PLACE, **network}, **needed())
        self.version = VERSION
        self._tunnels = tunnels
        reply = fleet.http("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", FILES)
        assert reply.code == 201, reply

    def grows_to(self, number: int) -> dict[str, Json]:
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
            said = json.loads(self.run(server, f"{_CURL} http://127.0.0.1:2381/health", _ETCD_SECONDS))
            assert said["health"] == "true", (server, said)
        files = f"--cacert {_ETCD}/server-ca.crt --cert {_ETCD}/client.crt --key {_ETCD}/client.key"
        asked = f"{_CURL} {files} https://127.0.0.1:2382/v3/cluster/member/list --data '{{\"linearizable\": true}}'"
        listed = json.loads(self.run(servers[0], asked, _ETCD_SECONDS))["members"]
        assert not [one for one in listed if one.get("isLearner")], listed
        return {str(one["name"]).rpartition("-")[0] for one in listed}

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
        whole = self.fleet.log.read_text().rpartition("\n")[0]  # the last line may just be written
        noted = (line.partition(" remuda.audit: ")[2] for line in whole.splitlines())
        return [line for line in map(json.loads, filter(None, noted)) if line["user"] == user]

    def waits(self, holds: Any, what: str) -> None:
        self.until(holds, what, PATIENCE_SECONDS)
