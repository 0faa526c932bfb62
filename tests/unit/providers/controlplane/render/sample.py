"""Clusters and hosts to render plans for: a plain one of each distribution, and one that uses everything."""

from __future__ import annotations

from remuda.capi.types import Endpoint
from remuda.capi.types.shared import Selector
from remuda.kube.selectors import label_selector_from_labels
from remuda.providers.controlplane.planner.observation import (
    ClusterFacts,
    ExtraFile,
    ExtraFiles,
    ObservedHost,
    RegistryAccess,
    Roles,
    S3Access,
    Tokens,
    Tunnel,
)
from remuda.providers.controlplane.render import Placement
from remuda.providers.shared import distros
from remuda.providers.shared.types.configuration import (
    S3,
    DataDirectories,
    EnvVar,
    Etcd,
    Mirror,
    Networking,
    Registries,
    RegistryConfig,
    SelectorConfig,
    Taint,
)
from remuda.providers.shared.types.controlplane import Installer, RKEControlPlaneSpec

VERSIONS = {"k3s": "v1.36.4+k3s1", "rke2": "v1.36.4+rke2r1", "nano": "v1.36.4+nano1"}
ROLES = {
    "init": Roles(etcd=True, control_plane=True, worker=True),
    "server": Roles(etcd=True, control_plane=True),
    "etcd": Roles(etcd=True),
    "control-plane": Roles(control_plane=True),
    "worker": Roles(worker=True),
}
SERVER_TOKEN, AGENT_TOKEN, KEY = "the-token-of-servers", "the-token-of-agents", b"the key of an authority\n"
TUNNEL_KEY = b"the-key-of-tunnels"
TUNNEL = Tunnel(cluster="c-m-abcdefgh", url="wss://manager.example/v3/connect", authority=b"the site's authority\n")
CERTIFICATE = b"""\
-----BEGIN CERTIFICATE-----
MIIBaDCCAQ6gAwIBAgIUFuVdtKpsrOE7mFZ7wyEmHfHsI5QwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGc2FtcGxlMCAXDTI1MTIzMTIzNTUwMFoYDzIxMjUxMjA4MDAw
MDAwWjARMQ8wDQYDVQQDDAZzYW1wbGUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQkriPlv3FsUAzT/JffEQhKBKscrwprRdoBS6o/tAM9QOi/JJ2OEGrrWzpXeDx3
ovPwKj53nl8dh6KCOZXxKuUfo0IwQDAdBgNVHQ4EFgQUlP1PdCdrxNZLvXxaWZT1
9YqESv8wDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAYYwCgYIKoZIzj0E
AwIDSAAwRQIgYL5ycLDv2SddsOhA1iBBa4o9wTc60u3XiV5Eczr4IBECIQDefu9w
phStRstYG6PeItql67v9d6xUU2WiTtri/+YUZw==
-----END CERTIFICATE-----
"""
AUTHORITIES = {
    "server/tls/server-ca.crt": CERTIFICATE,
    "server/tls/server-ca.key": KEY,
    "server/tls/etcd/peer-ca.crt": b"a certificate\n",
    "server/tls/etcd/peer-ca.key": KEY,
    "server/tls/service.key": KEY,
}
_ARTEFACTS = {"k3s": "k3s", "rke2": "rke2.tar.gz", "nano": "nano.tar.gz"}


def plain(distro: str = "k3s", **spec: object) -> ClusterFacts:
    version = distros.parse_version(VERSIONS[distro])
    return ClusterFacts(
        name="prairie",
        namespace="fleet-default",
        uid="cluster-uid",
        created=0,
        spec=RKEControlPlaneSpec(kubernetes_version=version.text, cluster_name="prairie", **spec),  # type: ignore[arg-type]
        distro=distros.of(version),
        version=version,
        renderer=1,
        installer=_installer(distro, artefacts=distro == "nano"),
        tokens=Tokens(SERVER_TOKEN, AGENT_TOKEN),
        authorities=AUTHORITIES,
    )


def rich(distro: str) -> ClusterFacts:
    base = plain(
        distro,
        management_cluster_name="c-m-abcdefgh",
        machine_global_config={
            "cluster-cidr": "10.44.0.0/16",
            "service-cidr": "10.45.0.0/16",
            "kubelet-arg": ["max-pods=200"],
            "write-kubeconfig-mode": 640,
            "protect-kernel-defaults": "true",
            "etcd-expose-metrics": True,
            "system-default-registry": "registry.example.com",
            "tls-san": ["prairie.example.com"],
            "audit-policy-file": "apiVersion: audit.k8s.io/v1\nkind: Policy\n",
            "cloud-provider-config": "secret://fleet-default:cloud",
            "kube-controller-manager-arg": ["node-monitor-grace-period=20s"],
            **(
                {"cloud-provider-name": "external"}
                if distro == "rke2"
                else {"kube-controller-manager-arg": ["node-monitor-grace-period=20s", "secure-port=20257"]}
            ),
        },
        machine_selector_config=[
            SelectorConfig(config={"kubelet-arg+": ["v=2"]}),
            SelectorConfig(machine_label_selector=Selector(match_labels={"pool": "metal"}), config={"selinux": True}),
            SelectorConfig(machine_label_selector=Selector(match_labels={"pool": "none"}), config={"debug": True}),
        ],
        chart_values={f"{distro}-coredns": {"replicas": 2}, f"{distro}-other": {"global": {"cattle": {"a": 1}}}},
        additional_manifest="apiVersion: v1\nkind: Namespace\nmetadata:\n  name: extra\n",
        registries=Registries(
            mirrors={"docker.io": Mirror(endpoint=["https://mirror.example.com"], rewrite={"^(.*)$": "hub/$1"})},
            configs={
                "mirror.example.com": RegistryConfig(auth_config_secret_name="auth", ca_bundle="Q0EK"),
                "registry.example.com:5000": RegistryConfig(tls_secret_name="tls", insecure_skip_verify=True),
            },
        ),
        etcd=Etcd(snapshot_schedule_cron="0 */6 * * *", snapshot_retention=7),
        networking=Networking(stack_preference="ipv4"),
        data_directories=DataDirectories(
            system_agent="/data/agent", provisioning="/data/capr/", k8s_distro=f"/data/{distro}"
        ),
        provision_generation=3,
        agent_env_vars=[EnvVar(name="HTTPS_PROXY", value="http://proxy:3128"), EnvVar(name="EMPTY")],
    )
    changes = {
        "installer": _installer(distro, artefacts=True),
        "config_generation": 2,
        "tokens": Tokens(SERVER_TOKEN, AGENT_TOKEN, TUNNEL_KEY),
        "tunnel": TUNNEL,
        "endpoint": Endpoint(host="api.example.com", port=6443),
        "registries": {
            "mirror.example.com": RegistryAccess(username="somebody", password="a-password"),
            "registry.example.com:5000": RegistryAccess(certificate="CERTIFICATE\n", key="KEY\n"),
        },
        "files": [
            ExtraFiles(None, [ExtraFile(path="/etc/motd", content=b"hello\n", permissions="644")]),
            ExtraFiles(
                label_selector_from_labels({"pool": "metal"}),
                [ExtraFile(path="/etc/metal", content=b"heavy\n", dynamic=True)],
            ),
            ExtraFiles(label_selector_from_labels({"pool": "none"}), [ExtraFile(path="/etc/none", content=b"no\n")]),
        ],
        "config_files": {"secret://fleet-default:cloud": "[Global]\nuser = a\n"},
        "s3": S3Access(
            s3=S3(bucket="snapshots", region="eu", endpoint="s3.example.com", endpoint_ca="Q0EK", retention=9),
            access_key="AKIA",
            secret_key="the-secret-key",
        ),
    }
    return with_(base, **changes)


HARDENED = {
    "k3s": {
        "protect-kernel-defaults": True,
        "secrets-encryption": True,
        "kube-apiserver-arg": ["admission-control-config-file=/etc/psa.yaml", "audit-log-maxage=30"],
        "kubelet-arg": ["streaming-connection-idle-timeout=5m"],
    },
    "rke2": {"profile": "cis"},
}
CLOUD = {
    "k3s": {"disable-cloud-controller": True, "kubelet-arg": ["cloud-provider=external"]},
    "rke2": {"cloud-provider-name": "external", "cloud-provider-config": "secret://fleet-default:cloud"},
}
IMAGES = {"k3s": ("images.tar.zst",), "rke2": ("images-core.tar.zst", "images-calico.tar.zst")}


def cis(distro: str) -> ClusterFacts:
    return plain(distro, machine_global_config=HARDENED[distro])


def cloud_provider(distro: str) -> ClusterFacts:
    base = plain(distro, machine_global_config=CLOUD[distro])
    return with_(base, config_files={"secret://fleet-default:cloud": "[Global]\nuser = a\n"})


def data_directory(distro: str) -> ClusterFacts:
    directories = DataDirectories(system_agent="/srv/agent", provisioning="/srv/capr", k8s_distro=f"/srv/{distro}")
    return plain(distro, data_directories=directories)


def air_gap(distro: str) -> ClusterFacts:
    names = {_ARTEFACTS[distro]: "a" * 64} | dict.fromkeys(IMAGES[distro], "b" * 64)
    base = plain(distro, machine_global_config={"system-default-registry": "registry.example.com"})
    return with_(base, installer=Installer(version=VERSIONS[distro], artefacts={"amd64": names}))


def dual_stack(distro: str) -> ClusterFacts:
    networks = {"cluster-cidr": "10.42.0.0/16,fd01::/48", "service-cidr": "10.43.0.0/16,fd02::/112"}
    return plain(distro, machine_global_config=networks, networking=Networking(stack_preference="dual"))


def with_(cluster: ClusterFacts, **changes: object) -> ClusterFacts:
    fields = {name: getattr(cluster, name) for name in cluster.__struct_fields__}
    return ClusterFacts(**(fields | changes))


def host(role: str = "init", **changes: object) -> ObservedHost:
    fields = {
        "name": f"prairie-{role}-1",
        "namespace": "fleet-default",
        "uid": f"uid-of-{role}",
        "created": 0.0,
        "roles": ROLES[role],
        "labels": {"pool": "metal"},
        "node_name": f"prairie-{role}-1",
        "node_labels": {"colour": "blue"},
        "node_taints": [Taint(key="only", value="some", effect="NoSchedule")],
        "provider_id": f"process://prairie-{role}-1",
        "internal_addresses": ["10.0.0.5", "fd00::5"],
        "external_addresses": ["203.0.113.5", "10.0.0.5", "fe80::1"],
    }
    return ObservedHost(**(fields | changes))  # type: ignore[arg-type]


def place(role: str, distro: str = "k3s") -> Placement:
    if role == "init":
        return Placement(init=True)
    port = distros.of(distros.parse_version(VERSIONS[distro])).supervisor_port
    return Placement(servers=[f"https://10.0.0.5:{port}", f"https://10.0.0.6:{port}"])


def _installer(distro: str, *, artefacts: bool) -> Installer:
    version = VERSIONS[distro]
    if not artefacts:
        return Installer(version=version, image=f"rancher/system-agent-installer-{distro}:{version.replace('+', '-')}")
    names = {_ARTEFACTS[distro]: "a" * 64} | ({} if distro == "nano" else {"images.tar.zst": "b" * 64})
    return Installer(version=version, artefacts={"amd64": names, "arm64": dict(names)})
