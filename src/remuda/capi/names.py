"""Every name Cluster API agrees on: labels, annotations, finalizers, taints, secrets.

Other programs read and write these, so none of them can change. Object names may be longer than a label value may be;
`label_value` converts them to labels, and must be used to compare a label with a name.
"""

from __future__ import annotations

import base64

from remuda.kube import names as kube_names

GROUP = "cluster.x-k8s.io"
VERSION = "v1beta2"
API_VERSION = f"{GROUP}/{VERSION}"

# Labels.
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"  # on everything that belongs to a Cluster
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"  # on control plane Machines; its value is empty
CONTROL_PLANE_NAME = "cluster.x-k8s.io/control-plane-name"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
SET_NAME = "cluster.x-k8s.io/set-name"
POOL_NAME = "cluster.x-k8s.io/pool-name"
TEMPLATE_HASH = "machine-template-hash"  # which revision of a MachineDeployment a MachineSet or Machine is of
PROVIDER = "cluster.x-k8s.io/provider"
WATCH_FILTER = "cluster.x-k8s.io/watch-filter"
INTERRUPTIBLE = "cluster.x-k8s.io/interruptible"  # on Nodes that may vanish at any time
POD_DRAIN = "cluster.x-k8s.io/drain"  # on Pods: "skip" or "wait-completed"
TOPOLOGY_OWNED = "topology.cluster.x-k8s.io/owned"
AGGREGATE_TO_MANAGER = "cluster.x-k8s.io/aggregate-to-manager"
CLUSTERCTL = "clusterctl.cluster.x-k8s.io"  # on definitions whose objects `clusterctl move` looks for

CONTRACTS = ("v1beta2", "v1beta1")  # newest first


def contract_label(contract: str) -> str:
    """On a provider's CRD: which of its versions follow that contract, joined by "_"."""
    return f"{GROUP}/{contract}"


# Annotations.
PAUSED = "cluster.x-k8s.io/paused"
EXTERNALLY_MANAGED = "cluster.x-k8s.io/managed-by"  # on an externally managed infrastructure cluster
DISABLE_MACHINE_CREATE = "cluster.x-k8s.io/disable-machine-create"
DELETE_MACHINE = "cluster.x-k8s.io/delete-machine"  # the first to go when a MachineSet shrinks
SKIP_REMEDIATION = "cluster.x-k8s.io/skip-remediation"
REMEDIATE_MACHINE = "cluster.x-k8s.io/remediate-machine"
CLONED_FROM_NAME = "cluster.x-k8s.io/cloned-from-name"
CLONED_FROM_GROUP_KIND = "cluster.x-k8s.io/cloned-from-groupkind"
REPLICAS_MANAGED_BY = "cluster.x-k8s.io/replicas-managed-by"
AUTOSCALER_MIN_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
AUTOSCALER_MAX_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
CONVERSION_DATA = "cluster.x-k8s.io/conversion-data"  # never copied from one object to another
EXCLUDE_NODE_DRAINING = "machine.cluster.x-k8s.io/exclude-node-draining"
EXCLUDE_WAIT_FOR_VOLUME_DETACH = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
CERTIFICATES_EXPIRY = "machine.cluster.x-k8s.io/certificates-expiry"
PRE_DRAIN_HOOK = "pre-drain.delete.hook.machine.cluster.x-k8s.io"  # also with "/<anything>" behind it
PRE_TERMINATE_HOOK = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"  # likewise
SKIP_PREFLIGHT_CHECKS = "machineset.cluster.x-k8s.io/skip-preflight-checks"
REVISION = "machinedeployment.clusters.x-k8s.io/revision"  # "clusters": so it is spelled everywhere
REVISION_HISTORY = "machinedeployment.clusters.x-k8s.io/revision-history"
DESIRED_REPLICAS = "machinedeployment.clusters.x-k8s.io/desired-replicas"
MAX_REPLICAS = "machinedeployment.clusters.x-k8s.io/max-replicas"
TOPOLOGY_DRY_RUN = "topology.cluster.x-k8s.io/dry-run"
UPDATE_IN_PROGRESS = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # kubectl's; never copied either

# Annotations of Nodes.
NODE_CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
NODE_CLUSTER_NAMESPACE = "cluster.x-k8s.io/cluster-namespace"
NODE_MACHINE = "cluster.x-k8s.io/machine"
NODE_OWNER_KIND = "cluster.x-k8s.io/owner-kind"
NODE_OWNER_NAME = "cluster.x-k8s.io/owner-name"
NODE_LABELS_FROM_MACHINE = "cluster.x-k8s.io/labels-from-machine"
NODE_ANNOTATIONS_FROM_MACHINE = "cluster.x-k8s.io/annotations-from-machine"
NODE_TAINTS_FROM_MACHINE = "cluster.x-k8s.io/taints-from-machine"

# Which of a Machine's labels are copied to its Node: the role, and these domains with their subdomains.
NODE_ROLE_PREFIX = "node-role.kubernetes.io"
NODE_RESTRICTION_DOMAIN = "node-restriction.kubernetes.io"
MANAGED_NODE_DOMAIN = "node.cluster.x-k8s.io"

# Taints.
UNINITIALIZED_TAINT = "node.cluster.x-k8s.io/uninitialized"  # NoSchedule, until the Node has the Machine's metadata
OUTDATED_REVISION_TAINT = "node.cluster.x-k8s.io/outdated-revision"  # PreferNoSchedule, while a rollout is under way

# Finalizers.
CLUSTER_FINALIZER = "cluster.cluster.x-k8s.io"
MACHINE_FINALIZER = "machine.cluster.x-k8s.io"
MACHINE_SET_FINALIZER = "cluster.x-k8s.io/machineset"
MACHINE_DEPLOYMENT_FINALIZER = "cluster.x-k8s.io/machinedeployment"

# Secrets.
SECRET_TYPE = "cluster.x-k8s.io/secret"  # noqa: S105
KUBECONFIG_KEY = "value"


def kubeconfig_secret(cluster: str) -> str:
    return f"{cluster}-kubeconfig"


def ca_secret(cluster: str) -> str:
    return f"{cluster}-ca"


_LONGEST_NAME = 253


def label_value(name: str) -> str:
    """Return the name itself where a label may hold it, otherwise a short digest of it.

    What is too long for any object's name is refused elsewhere; to hash three megabytes takes a quarter of a second."""
    if not kube_names.label_value(name):
        return name
    # The hash that Cluster API uses: other controllers select objects by the same label value.
    digest = _fnv32a(name[:_LONGEST_NAME].encode()).to_bytes(4, "big")
    return f"hash_{base64.urlsafe_b64encode(digest).decode().rstrip('=')}_z"


def _fnv32a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
