"""Arguments of servers and agents: the keys of K3s and RKE2, each a long flag and a key of the config file.

nano accepts all of them, so that every configuration of K3s works here. Many configure features that a stand-in lacks
(networks, images, snapshots): they are read, shown on the Node, and have no effect. The page of nano lists those that
have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

ArgumentType = Literal["string", "boolean", "list"]


def _table(**groups: str) -> dict[str, ArgumentType]:
    types: Mapping[str, ArgumentType] = {"strings": "string", "booleans": "boolean", "lists": "list"}
    return {key: types[group] for group, keys in groups.items() for key in keys.split()}


AGENT: dict[str, ArgumentType] = _table(
    strings="""
        config token token-file server data-dir node-name resolv-conf lb-server-port
        container-runtime-endpoint default-runtime snapshotter pause-image image-service-endpoint private-registry
        image-credential-provider-config image-credential-provider-bin-dir bind-address flannel-iface flannel-conf
        flannel-cni-conf log vmodule v vpn-auth vpn-auth-file
    """,
    booleans="""
        debug alsologtostderr with-node-id protect-kernel-defaults selinux enable-pprof
        disable-default-registry-endpoint nonroot-devices docker rootless prefer-bundled-bin disable-apiserver-lb
    """,
    lists="""
        node-label node-taint node-ip node-external-ip node-internal-dns node-external-dns kubelet-arg kube-proxy-arg
        airgap-extra-registry
    """,
)

SERVER: dict[str, ArgumentType] = AGENT | _table(
    strings="""
        agent-token agent-token-file cluster-reset-restore-path advertise-address advertise-port https-listen-port
        cluster-domain service-node-port-range egress-selector-mode flannel-backend servicelb-namespace
        system-default-registry write-kubeconfig write-kubeconfig-mode write-kubeconfig-group write-kubeconfig-name
        etcd-snapshot-name etcd-snapshot-schedule-cron etcd-snapshot-retention etcd-snapshot-dir
        etcd-snapshot-reconcile-interval etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-access-key etcd-s3-secret-key
        etcd-s3-session-token etcd-s3-bucket etcd-s3-bucket-lookup-type etcd-s3-region etcd-s3-folder etcd-s3-retention
        etcd-s3-proxy etcd-s3-timeout etcd-s3-config-secret datastore-endpoint datastore-cafile datastore-certfile
        datastore-keyfile default-local-storage-path secrets-encryption-provider
        helm-job-image
    """,
    booleans="""
        cluster-init cluster-reset disable-agent disable-apiserver disable-controller-manager disable-scheduler
        disable-etcd disable-cloud-controller disable-helm-controller disable-network-policy disable-kube-proxy
        embedded-registry supervisor-metrics flannel-ipv6-masq flannel-external-ip etcd-expose-metrics
        etcd-disable-snapshots etcd-snapshot-compress etcd-s3 etcd-s3-skip-ssl-verify etcd-s3-insecure
        secrets-encryption tls-san-security kine-tls
    """,
    lists="""
        tls-san disable cluster-cidr service-cidr cluster-dns kube-apiserver-arg kube-controller-manager-arg
        kube-scheduler-arg kube-cloud-controller-manager-arg etcd-arg helm-controller-arg
    """,
)

# Keys above that RKE2 does not have.
_K3S_ONLY = frozenset(
    _table(
        strings="""
        image-service-endpoint flannel-iface flannel-conf flannel-cni-conf vpn-auth vpn-auth-file docker rootless
        prefer-bundled-bin disable-apiserver-lb https-listen-port advertise-port cluster-init disable-agent
        disable-helm-controller disable-network-policy flannel-backend flannel-ipv6-masq flannel-external-ip
        default-local-storage-path
        """
    )
)
_PODS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "cloud-controller-manager",
)


def _of_rke2(table: Mapping[str, ArgumentType]) -> dict[str, ArgumentType]:
    return {key: kind for key, kind in table.items() if key not in _K3S_ONLY}


RKE2_AGENT: dict[str, ArgumentType] = _of_rke2(AGENT) | _table(
    strings=f"""
        cloud-provider-name cloud-provider-config profile audit-policy-file pod-security-admission-config-file
        kubelet-path runtime-image {" ".join(f"{pod}-image" for pod in _PODS)}
    """,
    booleans="node-name-from-cloud-provider-metadata",
    lists=f"""
        control-plane-resource-requests control-plane-resource-limits control-plane-probe-configuration
        {" ".join(f"{pod}-extra-mount {pod}-extra-env" for pod in _PODS)}
    """,
)

RKE2_SERVER: dict[str, ArgumentType] = (
    _of_rke2(SERVER) | RKE2_AGENT | _table(booleans="enable-servicelb prime", lists="cni ingress-controller")
)

SECRET = frozenset(
    {
        "token",
        "agent-token",
        "datastore-endpoint",
        "etcd-s3-access-key",
        "etcd-s3-secret-key",
        "etcd-s3-session-token",
        "vpn-auth",
    }
)

# Must be equal on all servers; otherwise a join is refused.
COMMON = (
    "cluster-cidr",
    "service-cidr",
    "cluster-dns",
    "cluster-domain",
    "disable-cloud-controller",
    "disable-helm-controller",
    "disable-network-policy",
    "secrets-encryption",
    "secrets-encryption-provider",
    "embedded-registry",
    "flannel-backend",
    "flannel-ipv6-masq",
    "flannel-external-ip",
    "egress-selector-mode",
    "supervisor-metrics",
)

# Environment variables by their suffix after the program's name: NANO_TOKEN.
ENVIRONMENT: Mapping[str, str] = {
    "TOKEN": "token",
    "TOKEN_FILE": "token-file",
    "URL": "server",
    "AGENT_TOKEN": "agent-token",
    "AGENT_TOKEN_FILE": "agent-token-file",
    "DATA_DIR": "data-dir",
    "NODE_NAME": "node-name",
    "CLUSTER_INIT": "cluster-init",
    "CONFIG_FILE": "config",
    "KUBECONFIG_OUTPUT": "write-kubeconfig",
    "KUBECONFIG_MODE": "write-kubeconfig-mode",
}
