"""K3s, and nano, the stand-in that is outwardly K3s."""

from __future__ import annotations

import msgspec

from remuda.providers.shared.distros import Distro, arguments
from remuda.providers.shared.distros.contract import Archive, Contract, Health, Keys, OwnedFile, Port, Script, Unit

_READ = "v1.36.4+k3s1"  # the release whose source was read
_EXECUTED = "v1.31.1+k3s1"  # `make e2e-k3s` runs a commit after this release

_ENVIRONMENT = ("/etc/default/%N", "/etc/sysconfig/%N", "/etc/systemd/system/%N.service.env")
_SERVING = ("1.30.13", "1.31.9", "1.32.5", "1.33.1")

CONTRACT = Contract(
    keys=(
        Keys(
            types=arguments.NODE,
            roles=("server", "agent"),
            source="k3s-io/k3s pkg/cli/cmds/agent.go",
            version=_READ,
        ),
        Keys(
            types=arguments.K3S_NODE,
            roles=("server", "agent"),
            source="k3s-io/k3s pkg/cli/cmds/agent.go",
            version=_READ,
        ),
        Keys(types=arguments.SERVER, roles=("server",), source="k3s-io/k3s pkg/cli/cmds/server.go", version=_READ),
        Keys(types=arguments.K3S_SERVER, roles=("server",), source="k3s-io/k3s pkg/cli/cmds/server.go", version=_READ),
        *arguments.LATER,
    ),
    units=(
        Unit(
            name="k3s",
            role="server",
            type="notify",
            active="the API server, and the node's own kubelet where there is an API, have answered",
            environment=_ENVIRONMENT,
            released=("/etc/default/k3s", "/etc/sysconfig/k3s"),
            source="k3s-io/k3s install.sh",
            version=_READ,
        ),
        Unit(
            name="k3s-agent",
            role="agent",
            type="exec",
            active="the process runs",
            environment=_ENVIRONMENT,
            released=("/etc/default/k3s-agent", "/etc/sysconfig/k3s-agent"),
            source="k3s-io/k3s install.sh",
            version=_READ,
        ),
    ),
    scripts=(
        Script(
            name="k3s-killall.sh",
            variables=("K3S_DATA_DIR",),
            note="ends well whether or not it has found containers",
            source="k3s-io/k3s install.sh",
            version=_READ,
        ),
    ),
    ports=(
        Port(name="supervisor", number=6443, fixed=False, source="k3s-io/k3s pkg/cli/cmds/server.go", version=_READ),
        Port(name="kube-apiserver", number=6443, fixed=False, source="k3s-io/k3s install.sh", version=_READ),
        Port(name="etcd-metrics", number=2381, fixed=True, source="k3s-io/k3s pkg/etcd/etcd.go", version=_READ),
        Port(name="kubelet-health", number=10248, fixed=False, source="kubelet's default", version=_READ),
        Port(name="kube-controller-manager", number=10257, fixed=False, source="its default", version=_READ),
        Port(name="kube-scheduler", number=10259, fixed=False, source="its default", version=_READ),
    ),
    health=(
        Health(component="etcd", url="http://:2381/health", source="observed", version=_EXECUTED),
        Health(
            component="kube-apiserver",
            url="https://:6443/readyz",
            trusts="server/tls/server-ca.crt",
            note="needs a client certificate",
            source="observed",
            version=_EXECUTED,
        ),
        Health(
            component="kube-controller-manager",
            url="https://:10257/healthz",
            trusts="server/tls/server-ca.crt",
            note="with tls-cert-file; see also server/tls/kube-controller-manager",
            source="observed",
            version=_EXECUTED,
        ),
        Health(
            component="kube-scheduler",
            url="https://:10259/healthz",
            trusts="server/tls/server-ca.crt",
            note="as kube-controller-manager",
            source="observed",
            version=_EXECUTED,
        ),
        Health(
            component="kubelet",
            url="http://:10248/healthz",
            note="an etcd-only server has no kubelet before there is an API",
            source="observed",
            version=_EXECUTED,
        ),
    ),
    files=(
        OwnedFile(
            path="server/tls/kube-controller-manager/kube-controller-manager.crt",
            mode="0644",
            when="signed by server-ca.crt, for one year, renewed at start",
            rewritten=True,
            source="k3s-io/k3s issues 12295 to 12298",
            version="v1.33.1+k3s1",
            since=_SERVING,
        ),
        OwnedFile(
            path="server/tls/kube-scheduler/kube-scheduler.crt",
            mode="0644",
            when="signed by server-ca.crt, for one year, renewed at start",
            rewritten=True,
            source="k3s-io/k3s issues 12295 to 12298",
            version="v1.33.1+k3s1",
            since=_SERVING,
        ),
    ),
    archives=(
        Archive(
            file="k3s-airgap-images-<arch>.tar.zst",
            name="images.tar.zst",
            images=("core",),
            source="k3s-io/k3s scripts/package-airgap",
            version=_READ,
        ),
    ),
)

AGENT_ARGUMENTS = CONTRACT.arguments("agent")
SERVER_ARGUMENTS = CONTRACT.arguments("server")

K3S = Distro(
    name="k3s",
    env_prefix="K3S",
    server_unit="k3s",
    agent_unit="k3s-agent",
    installer_image="rancher/system-agent-installer-k3s",
    supervisor_port=6443,
    server_arguments=SERVER_ARGUMENTS,
    agent_arguments=AGENT_ARGUMENTS,
    needs_cluster_init=True,
    taints_etcd_beside_control_plane=False,
    kubelet_without_api=False,
    contract=CONTRACT,
)

NANO = msgspec.structs.replace(
    K3S,
    name="nano",
    env_prefix="NANO",
    server_unit="nano",
    agent_unit="nano-agent",
    installer_image="",
    contract=Contract(),
)
