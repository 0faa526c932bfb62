"""Keys allowed in the config files of K3s and RKE2: the long names of flags, by the type of their value.

A server takes the arguments of an agent too. An agent of K3s does not start with a key it does not know, so its file
must not contain a key that is missing from its table. RKE2 maps every flag of the K3s that it embeds, so a flag that
is new in K3s is new in the RKE2 of the same version.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.providers.shared.distros.contract import ArgumentType, Keys

Table = Mapping[str, ArgumentType]


def table(*, string: str = "", boolean: str = "", number: str = "", many: str = "") -> dict[str, ArgumentType]:
    found: dict[str, ArgumentType] = {}
    found |= dict.fromkeys(string.split(), "string")
    found |= dict.fromkeys(boolean.split(), "boolean")
    found |= dict.fromkeys(number.split(), "number")
    found |= dict.fromkeys(many.split(), "list")
    return found


NODE: Table = table(
    string="""
        token token-file server data-dir node-name bind-address resolv-conf private-registry
        container-runtime-endpoint default-runtime snapshotter
        image-credential-provider-bin-dir image-credential-provider-config
        log vmodule
    """,
    boolean="""
        debug alsologtostderr with-node-id protect-kernel-defaults selinux enable-pprof
        disable-default-registry-endpoint
    """,
    number="lb-server-port v",
    many="""
        node-ip node-external-ip node-label node-taint
        kubelet-arg kube-proxy-arg airgap-extra-registry
    """,
)

SERVER: Table = table(
    string="""
        agent-token agent-token-file advertise-address cluster-reset-restore-path
        cluster-domain service-node-port-range egress-selector-mode servicelb-namespace
        write-kubeconfig write-kubeconfig-mode write-kubeconfig-group write-kubeconfig-name
        system-default-registry helm-job-image
        datastore-endpoint datastore-cafile datastore-certfile datastore-keyfile
        etcd-snapshot-name etcd-snapshot-schedule-cron etcd-snapshot-dir
        etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-access-key etcd-s3-secret-key etcd-s3-session-token
        etcd-s3-bucket etcd-s3-bucket-lookup-type etcd-s3-region etcd-s3-folder etcd-s3-proxy etcd-s3-timeout
        etcd-s3-config-secret
    """,
    boolean="""
        tls-san-security cluster-reset
        disable-apiserver disable-controller-manager disable-scheduler disable-etcd disable-cloud-controller
        disable-kube-proxy embedded-registry supervisor-metrics
        etcd-expose-metrics etcd-disable-snapshots etcd-snapshot-compress
        etcd-s3 etcd-s3-skip-ssl-verify etcd-s3-insecure
    """,
    number="etcd-snapshot-retention",
    many="""
        tls-san cluster-cidr service-cidr cluster-dns disable
        kube-apiserver-arg kube-controller-manager-arg kube-scheduler-arg kube-cloud-controller-manager-arg
        etcd-arg
    """,
)

K3S_NODE: Table = table(
    string="pause-image image-service-endpoint flannel-iface flannel-conf flannel-cni-conf vpn-auth vpn-auth-file",
    boolean="docker rootless prefer-bundled-bin disable-apiserver-lb",
)

K3S_SERVER: Table = table(
    string="flannel-backend default-local-storage-path",
    boolean="""
        cluster-init disable-helm-controller disable-network-policy disable-agent secrets-encryption
        flannel-ipv6-masq flannel-external-ip
    """,
    number="https-listen-port advertise-port",
)

_RKE2_PODS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "cloud-controller-manager",
)

RKE2_NODE: Table = table(
    string=" ".join(
        (
            "cloud-provider-name cloud-provider-config profile audit-policy-file pod-security-admission-config-file",
            "kubelet-path pause-image runtime-image",
            *(f"{pod}-image" for pod in _RKE2_PODS),
        )
    ),
    boolean="node-name-from-cloud-provider-metadata",
    many=" ".join(
        (
            "control-plane-resource-requests control-plane-resource-limits control-plane-probe-configuration",
            *(f"{pod}-extra-mount {pod}-extra-env" for pod in _RKE2_PODS),
        )
    ),
)

# `secrets-encryption` is hidden, and always on.
RKE2_SERVER: Table = table(boolean="enable-servicelb secrets-encryption", many="cni ingress-controller")

# Keys that not every supported version has, with the first releases that do. Keys of servers whose first release is not
# known are in the tables above: a server logs a key that it does not know, and goes on.
LATER: tuple[Keys, ...] = (
    Keys(
        types=table(many="node-internal-dns node-external-dns"),
        roles=("server", "agent"),
        source="k3s-io/k3s pull 10852, 11464, 11465",
        version="v1.31.4+k3s1",
        since=("1.30.8", "1.31.4", "1.32.0"),
    ),
    Keys(
        types=table(boolean="nonroot-devices"),
        roles=("server", "agent"),
        source="k3s-io/k3s pull 11200",
        version="v1.32.0+k3s1",
        since=("1.32.0",),
    ),
    Keys(
        types=table(string="etcd-snapshot-reconcile-interval"),
        roles=("server",),
        source="k3s-io/k3s pull 11881, issues 11889, 11891; rancher/rke2 issues 7895, 7896, 7897",
        version="v1.32.3+k3s1",
        since=("1.30.11", "1.31.7", "1.32.3", "1.33.0"),
    ),
    Keys(
        types=table(string="secrets-encryption-provider"),
        roles=("server",),
        source="k3s-io/k3s issues 12223, 12224, 12225",
        version="v1.32.4+k3s1",
        since=("1.30.12", "1.31.8", "1.32.4", "1.33.0"),
    ),
    Keys(
        types=table(number="etcd-s3-retention"),
        roles=("server",),
        source="k3s-io/k3s pull 12669, 12695, 12696",
        version="v1.32.8+k3s1",
        since=("1.31.12", "1.32.8", "1.33.4", "1.34.0"),
    ),
    Keys(
        types=table(many="helm-controller-arg"),
        roles=("server",),
        source="k3s-io/k3s issue 14300",
        version="v1.36.3+k3s1",
        since=("1.33.13", "1.34.10", "1.35.7", "1.36.3"),
    ),
)
