"""RKE2."""

from __future__ import annotations

from itertools import permutations

from remuda.providers.shared.distros import Distro, arguments
from remuda.providers.shared.distros.contract import (
    Archive,
    ConfigConstraint,
    Contract,
    Health,
    ImageChoice,
    Keys,
    OwnedFile,
    Port,
    Role,
    Script,
    Unit,
)

_READ = "v1.36.4+rke2r1"  # the release whose source was read
_OBSERVED = "v1.36.3+rke2r1"  # the build that ran on hosts, trimmed: no CNI, charts or upgrade

_NETWORKS = ("calico", "canal", "cilium", "flannel", "none")
_INGRESSES = ("ingress-nginx", "traefik")
_PROFILES_SINCE = ("1.30.14", "1.31.10", "1.32.6", "1.33.2")
_CLOUD = ("cloud-provider-name", "cloud-provider-config")
_NODE_NAMES = "would rename nodes, which are named after their Machines"

_LIMITS = (
    ConfigConstraint(
        key="node-external-ip",
        never_with=_CLOUD,
        words="cannot be set beside a cloud provider, which finds out the addresses itself: remove one of both",
        source="rancher/rke2 pkg/rke2/rke2_linux.go",
        version=_OBSERVED,
    ),
    ConfigConstraint(
        key="cloud-provider-config",
        only_with=("cloud-provider-name",),
        words="needs cloud-provider-name beside it",
        source="rancher/rke2 pkg/rke2/rke2_linux.go",
        version=_OBSERVED,
    ),
    ConfigConstraint(
        key="kube-controller-manager-arg",
        flag="secure-port",
        allowed=("10257",),
        words="cannot set another secure-port than 10257: RKE2 looks for the component's health there, and kills it",
        source="rancher/rke2 pkg/podtemplate/spec.go",
        version=_OBSERVED,
    ),
    ConfigConstraint(
        key="kube-scheduler-arg",
        flag="secure-port",
        allowed=("10259",),
        words="cannot set another secure-port than 10259: RKE2 looks for the component's health there, and kills it",
        source="rancher/rke2 pkg/podtemplate/spec.go",
        version=_OBSERVED,
    ),
    ConfigConstraint(
        key="cni",
        allowed=(*_NETWORKS, *(f"multus,{network}" for network in _NETWORKS)),
        words=f"must be one of {', '.join(_NETWORKS)}, perhaps with multus before it",
        source="rancher/rke2 pkg/cli/cmds/server.go",
        version=_READ,
    ),
    ConfigConstraint(
        key="ingress-controller",
        allowed=("none", *_INGRESSES, *(",".join(order) for order in permutations(_INGRESSES))),
        words=f"must be none, or of {', '.join(_INGRESSES)}",
        source="rancher/rke2 pkg/cli/cmds/server.go",
        version=_READ,
    ),
    ConfigConstraint(
        key="profile",
        allowed=("cis", "etcd"),
        words="must be cis or etcd",
        source="rancher/rke2 pkg/cli/cmds/profile_linux.go, pull 8349",
        version=_READ,
        since=_PROFILES_SINCE,
    ),
    ConfigConstraint(
        key="protect-kernel-defaults",
        allowed=("true",),
        when={"profile": "cis"},
        words="must be true where profile is cis",
        source="rancher/rke2 pkg/cli/cmds/profile_linux.go",
        version=_READ,
    ),
    ConfigConstraint(
        key="secrets-encryption",
        allowed=("true",),
        words="cannot be turned off: RKE2 always encrypts Secrets",
        source="rancher/rke2 pkg/cli/cmds/server.go: a hidden flag",
        version=_READ,
    ),
    ConfigConstraint(
        key="node-name-from-cloud-provider-metadata",
        forbidden=("true",),
        words=_NODE_NAMES,
        source="rancher/rke2 pkg/rke2/rke2_linux.go; ours: nodes are named after Machines",
        version=_READ,
    ),
    ConfigConstraint(
        key="cloud-provider-name",
        forbidden=("aws",),
        words=f"aws {_NODE_NAMES}; RKE2 has no such provider any more: set external",
        source="rancher/rke2 pkg/rke2/rke2_linux.go; ours: nodes are named after Machines",
        version=_READ,
    ),
)


def _unit(role: Role, active: str) -> Unit:
    unit = f"rke2-{role}"
    files = (f"/etc/default/{unit}", f"/etc/sysconfig/{unit}", f"/usr/local/lib/systemd/system/{unit}.env")
    return Unit(
        name=unit,
        role=role,
        type="notify",
        active=active,
        environment=files,
        released=files,
        source=f"rancher/rke2 bundle/lib/systemd/system/{unit}.service",
        version=_OBSERVED,
    )


def _archive(name: str, *images: str, since: tuple[str, ...] = (), before: str = "") -> Archive:
    return Archive(
        file=f"rke2-images{name}.linux-<arch>.tar.zst",
        name=f"images{name}.tar.zst",
        images=images,
        source="rancher/rke2 scripts/build-images, issues 6438, 9786",
        version=_READ,
        since=since,
        before=before,
    )


CONTRACT = Contract(
    keys=(
        Keys(
            types=arguments.NODE,
            roles=("server", "agent"),
            source="rancher/rke2 pkg/cli/cmds/agent.go",
            version=_OBSERVED,
        ),
        Keys(
            types=arguments.RKE2_NODE,
            roles=("server", "agent"),
            source="rancher/rke2 pkg/cli/cmds/root.go",
            version=_OBSERVED,
        ),
        Keys(
            types=arguments.SERVER,
            roles=("server",),
            source="rancher/rke2 pkg/cli/cmds/server.go",
            version=_OBSERVED,
        ),
        Keys(
            types=arguments.RKE2_SERVER,
            roles=("server",),
            source="rancher/rke2 pkg/cli/cmds/server.go",
            version=_OBSERVED,
        ),
        Keys(  # which patch of each minor came first is not known
            types=arguments.table(boolean="prime"),
            roles=("server",),
            source="rancher/rke2 pull 9875 to 9878",
            version=_OBSERVED,
            since=("1.32.0",),
        ),
        *arguments.LATER,
    ),
    limits=_LIMITS,
    units=(
        _unit(
            "server",
            "the static Pods are synced; after a restart those of before answer until then. One with etcd alone needs "
            "an API server elsewhere to become active",
        ),
        _unit("agent", "the kubelet runs"),
    ),
    scripts=(
        Script(
            name="rke2-killall.sh",
            variables=("RKE2_DATA_DIR",),
            note="ends well whether or not it has found containers",
            source="rancher/rke2 bundle/bin/rke2-killall.sh",
            version=_OBSERVED,
        ),
        Script(
            name="rke2-uninstall.sh",
            variables=("INSTALL_RKE2_ROOT", "RKE2_DATA_DIR"),
            note="names /usr/local; install.sh rewrites it where the prefix is another",
            source="rancher/rke2 bundle/bin/rke2-uninstall.sh, install.sh",
            version=_READ,
        ),
    ),
    ports=(
        Port(name="supervisor", number=9345, fixed=True, source="observed", version=_OBSERVED),
        Port(name="kube-apiserver", number=6443, fixed=True, source="observed", version=_OBSERVED),
        Port(name="etcd-metrics", number=2381, fixed=True, source="observed", version=_OBSERVED),
        Port(name="kubelet-health", number=10248, fixed=False, source="observed", version=_OBSERVED),
        Port(
            name="kube-controller-manager",
            number=10257,
            fixed=True,
            source="rancher/rke2 pkg/podtemplate/spec.go",
            version=_OBSERVED,
        ),
        Port(
            name="kube-scheduler",
            number=10259,
            fixed=True,
            source="rancher/rke2 pkg/podtemplate/spec.go",
            version=_OBSERVED,
        ),
    ),
    health=(
        Health(
            component="rke2-server",
            url="https://:9345/ping",
            trusts="server/tls/server-ca.crt",
            note="of RKE2's own process, so of the new one after a restart; it answers before the unit is active",
            source="rancher/rke2 pkg/rke2/rke2.go; k3s-io/k3s pkg/server/handlers/router.go",
            version=_READ,
        ),
        Health(
            component="etcd",
            url="http://:2381/health",
            note="after a restart of the unit the old Pod answers until the new one replaces it",
            source="observed",
            version=_OBSERVED,
        ),
        Health(
            component="kube-apiserver",
            url="https://:6443/readyz",
            trusts="server/tls/server-ca.crt",
            note="needs a client certificate; after a restart as etcd",
            source="observed",
            version=_OBSERVED,
        ),
        Health(
            component="kube-controller-manager",
            url="https://:10257/healthz",
            trusts="server/tls/server-ca.crt",
            note="with tls-cert-file, which RKE2 mounts into the Pod by itself",
            source="observed",
            version=_OBSERVED,
        ),
        Health(
            component="kube-scheduler",
            url="https://:10259/healthz",
            trusts="server/tls/server-ca.crt",
            note="as kube-controller-manager",
            source="observed",
            version=_OBSERVED,
        ),
        Health(component="kubelet", url="http://:10248/healthz", source="observed", version=_OBSERVED),
        Health(component="calico", url="http://:9099/liveness", source="Felix's default", version=_READ),
    ),
    files=tuple(
        OwnedFile(
            path=f"server/tls/etcd/{name}",
            owner="etcd",
            when="profile is cis or etcd: at each start",
            source="rancher/rke2 pkg/executor/staticpod/staticpod.go",
            version=_OBSERVED,
        )
        for name in ("server-ca.crt", "peer-ca.crt")
    ),
    archives=(
        _archive("", "core", "canal", "ingress-nginx", before="1.36.0"),
        _archive("", "core", "canal", "traefik", since=("1.36.0",)),
        _archive("-core", "core", "ingress-nginx", before="1.36.0"),
        _archive("-core", "core", "traefik", since=("1.36.0",)),
        _archive("-traefik", "traefik", since=("1.30.3",), before="1.36.0"),
        _archive("-ingress-nginx", "ingress-nginx", since=("1.36.0",)),
        *(_archive(f"-{name}", name) for name in ("canal", "calico", "cilium", "flannel", "multus")),
        *(_archive(f"-{name}", name) for name in ("vsphere", "harvester")),
    ),
    image_choices=(
        ImageChoice(
            key="cni",
            sets={name: name for name in ("canal", "calico", "cilium", "flannel", "multus")},
            default=("canal",),
            source="rancher/rke2 scripts/build-images, pkg/cli/cmds/server.go",
            version=_READ,
        ),
        ImageChoice(
            key="ingress-controller",
            sets={name: name for name in _INGRESSES},
            default=("ingress-nginx",),
            source="rancher/rke2 issue 9786; docs.rke2.io/reference/ingress_migration",
            version=_READ,
            before="1.36.0",
        ),
        ImageChoice(  # a cluster that comes from 1.35 keeps ingress-nginx, which its configuration does not tell
            key="ingress-controller",
            sets={name: name for name in _INGRESSES},
            default=("traefik",),
            source="rancher/rke2 issue 9786; docs.rke2.io/reference/ingress_migration",
            version=_READ,
            since=("1.36.0",),
        ),
        ImageChoice(
            key="cloud-provider-name",
            sets={"rancher-vsphere": "vsphere", "harvester": "harvester"},
            source="rancher/rke2 pkg/cli/cmds/root.go",
            version=_READ,
        ),
    ),
)

RKE2 = Distro(
    name="rke2",
    env_prefix="RKE2",
    server_unit="rke2-server",
    agent_unit="rke2-agent",
    installer_image="rancher/system-agent-installer-rke2",
    supervisor_port=9345,
    server_arguments=CONTRACT.arguments("server"),
    agent_arguments=CONTRACT.arguments("agent"),
    defaults={"cni": "calico"},
    components_outlive_unit=True,
    network_probe=":9099/liveness",
    probed_networks=frozenset({"calico"}),
    executed=False,
    contract=CONTRACT,
)
