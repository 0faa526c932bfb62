"""The CustomResourceDefinitions of the provisioning and the management Cluster."""

from __future__ import annotations

from typing import Any

from remuda.kube.definitions import WIDE, Column, Definition, custom_resource_definition
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER, READY

_AGE = Column("Age", ".metadata.creationTimestamp", "Time since it was created", "date")


def _ready(part: str, name: str, doc: str, priority: int = 0) -> Column:
    return Column(name, f'.status.conditions[?(@.type=="{READY}")].{part}', doc, priority=priority)


DEFINITIONS = (
    Definition(
        kind=CLUSTER,
        categories=("provisioning",),
        nullable=True,
        labels={"auth.cattle.io/cluster-indexed": "true"},
        columns=(
            Column("Version", ".spec.kubernetesVersion", "The desired version"),
            Column("Cluster Name", ".status.clusterName", "Id of its management Cluster"),
            _AGE,
            Column("Kubeconfig", ".status.clientSecretName", "The Secret with its kubeconfig"),
            _ready("status", "Ready", "Whether the cluster works and every node is in its desired state"),
            _ready("reason", "Reason", "Reason of the Ready condition"),
            _ready("message", "Message", "What it waits for, or what has failed", WIDE),
        ),
    ),
    Definition(
        kind=MANAGEMENT_CLUSTER,
        columns=(
            Column("Display Name", ".spec.displayName", "Its name for users"),
            Column("Workspace", ".spec.fleetWorkspaceName", "The namespace of its provisioning Cluster"),
            Column("Version", ".status.info.kubernetesVersion", "The desired version"),
            Column("Nodes", ".status.info.nodeCount", "How many Machines it has", "integer"),
            _ready("status", "Ready", "Whether the cluster works and every node is in its desired state"),
            _ready("reason", "Reason", "Reason of the Ready condition"),
            _ready("message", "Message", "What it waits for, or what has failed", WIDE),
            _AGE,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
