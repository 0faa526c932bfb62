"""The CustomResourceDefinitions of the provisioning and the management Cluster."""

from __future__ import annotations

from typing import Any

from remuda.kube.definitions import WIDE, Definition, PrinterColumn, custom_resource_definition
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER, READY

_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date")


def _ready(part: str, name: str, doc: str, priority: int = 0) -> PrinterColumn:
    return PrinterColumn(name, f'.status.conditions[?(@.type=="{READY}")].{part}', doc, priority=priority)


DEFINITIONS = (
    Definition(
        kind=CLUSTER,
        short_names=("pcl",),  # cl is that of Cluster API
        categories=("provisioning", "remuda"),
        nullable=True,
        labels={"auth.cattle.io/cluster-indexed": "true"},
        columns=(
            PrinterColumn("Version", ".spec.kubernetesVersion", "The desired version"),
            PrinterColumn("Cluster Name", ".status.clusterName", "Id of its management Cluster"),
            _AGE,
            PrinterColumn("Kubeconfig", ".status.clientSecretName", "The Secret with its kubeconfig"),
            _ready("status", "Ready", "Whether the cluster works and every node is in its desired state"),
            _ready("reason", "Reason", "Reason of the Ready condition"),
            _ready("message", "Message", "What it waits for, or what has failed", WIDE),
        ),
    ),
    Definition(
        kind=MANAGEMENT_CLUSTER,
        columns=(
            PrinterColumn("Display Name", ".spec.displayName", "Its name for users"),
            PrinterColumn("Workspace", ".spec.fleetWorkspaceName", "The namespace of its provisioning Cluster"),
            PrinterColumn("Version", ".status.info.kubernetesVersion", "The desired version"),
            PrinterColumn("Nodes", ".status.info.nodeCount", "How many Machines it has", "integer"),
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
