"""Names the providers share with agents, manifests and tools in the field: none of them can change."""

from __future__ import annotations

import hashlib

GROUP = "rke.cattle.io"
API_VERSION = f"{GROUP}/v1"
MACHINE_GROUP = "rke-machine.cattle.io"  # <Driver>Machine, <Driver>MachineTemplate
MACHINE_API_VERSION = f"{MACHINE_GROUP}/v1"
CONFIG_GROUP = "rke-machine-config.cattle.io"  # <Driver>Config
CONFIG_API_VERSION = f"{CONFIG_GROUP}/v1"
MANAGEMENT_API_VERSION = "management.cattle.io/v3"

# Labels.
CLUSTER_NAME = "rke.cattle.io/cluster-name"
NODE_MACHINE = "rke.cattle.io/machine"  # label of Nodes: the uid of their Machine
MACHINE_NAME = "rke.cattle.io/machine-name"
CAPI_MACHINE_NAME = "rke.cattle.io/capi-machine-name"
BOOTSTRAP_NAME = "rke.cattle.io/rkebootstrap-name"
PLAN_SECRET_NAME = "rke.cattle.io/plan-secret-name"  # noqa: S105
ACCOUNT_ROLE = "rke.cattle.io/service-account-role"  # of a ServiceAccount: PLAN_ROLE
PLAN_ROLE = "plan"
MACHINE_ID = "rke.cattle.io/machine-id"  # what the host calls itself, for life (X-Cattle-Id)
NODE_NAME = "rke.cattle.io/node-name"
INIT_NODE = "rke.cattle.io/init-node"
ETCD_ROLE = "rke.cattle.io/etcd-role"
CONTROL_PLANE_ROLE = "rke.cattle.io/control-plane-role"
WORKER_ROLE = "rke.cattle.io/worker-role"
OS = "cattle.io/os"
MACHINE_FAILURES = "remuda.dev/machine-failures"  # of the ConfigMap with the failures of a pool: its name

# Annotations.
ADDRESS = "rke.cattle.io/address"
INTERNAL_ADDRESS = "rke.cattle.io/internal-address"
NODE_LABELS = "rke.cattle.io/labels"
NODE_TAINTS = "rke.cattle.io/taints"
CREATOR = "field.cattle.io/creatorId"  # of a Cluster: the user who made it
ABANDON = "provisioning.cattle.io/force-machine-remove"  # "true" gives up a server that cannot be removed
HOSTNAME_LENGTH_LIMIT = "rke.cattle.io/hostname-length-limit"

# A permanent failure: a condition that is True, and the reason of a Ready that is False. Cluster API copies that reason
# to InfrastructureReady or BootstrapConfigReady of a Machine. Nobody tries again until somebody changes something.
STALLED = "Stalled"

# Types of Secrets.
PLAN_TYPE = "rke.cattle.io/machine-plan"
BOOTSTRAP_TYPE = "rke.cattle.io/bootstrap"
STATE_TYPE = "rke.cattle.io/machine-state"
LOG_TYPE = "remuda.dev/machine-log"
REQUEST_TYPE = "rke.cattle.io/machine-request"

_LONGEST = 63


def join(*parts: str) -> str:
    """Object names made of others: joined with "-", and cut with a piece of a hash where that is too long for a label.
    Others derive the same names, so the rule is theirs."""
    return shorten("-".join(parts), _LONGEST)


def shorten(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    if most <= 5:
        return name[:most]
    digest = hashlib.sha256(name.encode()).hexdigest()
    last = name[most - 7]
    if last.isascii() and (last.islower() or last.isdigit()):
        return f"{name[: most - 6]}-{digest[:5]}" if most > 6 else digest[:5]
    return f"{name[: most - 7]}-{digest[:6]}"


def plan_secret(bootstrap: str) -> str:
    """Also the name of the ServiceAccount, Role and RoleBinding that open this one Secret to its host."""
    return join(bootstrap, "machine", "plan")


def bootstrap_secret(bootstrap: str) -> str:
    return join(bootstrap, "machine", "bootstrap")


def state_secret(machine: str) -> str:
    return join(machine, "machine", "state")


def machine_log(machine: str) -> str:
    """The Secret with the logs of a machine that is deleted."""
    return join(machine, "machine", "log")


def provision(machine: str) -> str:
    """The Job, its ServiceAccount, Role, RoleBinding, and the Secret with its order."""
    return join(machine, "machine", "provision")


def admin_kubeconfig_secret(cluster: str) -> str:
    """Return the name of the Secret with the kubeconfig issued by the cluster's own authority.

    It is used if `<cluster>-kubeconfig` leads through the proxy. No other Secret of a cluster has this suffix, so the
    name never collides with that of a cluster with a longer name.
    """
    return f"{cluster}-kubeconfig-admin"


def credential_secret(machine: str) -> str:
    return join(machine, "machine", "driver", "secret")
