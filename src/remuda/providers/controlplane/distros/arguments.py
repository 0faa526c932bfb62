"""What the config files of K3s and RKE2 may hold: the long names of flags, by the type of their value.

A server takes the arguments of an agent too. An agent of K3s does not start with a key it does not know, so what is not
in its table must not be in its file.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.providers.controlplane.distros import ArgumentType

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
        debug alsologtostderr with-node-id protect-kernel-defaults selinux nonroot-devices enable-pprof
        disable-default-registry-endpoint
    """,
    number="lb-server-port v",
    many="""
        node-ip node-external-ip node-internal-dns node-external-dns node-label node-taint
        kubelet-arg kube-proxy-arg airgap-extra-registry
    """,
)

SERVER: Table = table(
    string="""
        agent-token agent-token-file advertise-address cluster-reset-restore-path
        cluster-domain service-node-port-range egress-selector-mode servicelb-namespace
        write-kubeconfig write-kubeconfig-mode write-kubeconfig-group write-kubeconfig-name
        system-default-registry helm-job-image secrets-encryption-provider
        datastore-endpoint datastore-cafile datastore-certfile datastore-keyfile
        etcd-snapshot-name etcd-snapshot-schedule-cron etcd-snapshot-dir etcd-snapshot-reconcile-interval
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
    number="etcd-snapshot-retention etcd-s3-retention",
    many="""
        tls-san cluster-cidr service-cidr cluster-dns disable
        kube-apiserver-arg kube-controller-manager-arg kube-scheduler-arg kube-cloud-controller-manager-arg
        etcd-arg helm-controller-arg
    """,
)

K3S_NODE: Table = table(
    string="pause-image flannel-iface flannel-conf flannel-cni-conf vpn-auth vpn-auth-file",
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
    boolean="node-name-from-cloud-provider-metadata prime",
    many=" ".join(
        (
            "control-plane-resource-requests control-plane-resource-limits control-plane-probe-configuration",
            *(f"{pod}-extra-mount {pod}-extra-env" for pod in _RKE2_PODS),
        )
    ),
)

RKE2_SERVER: Table = table(boolean="enable-servicelb", many="cni ingress-controller")
