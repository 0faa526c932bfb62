"""The CustomResourceDefinition of RKEControlPlane."""

from __future__ import annotations

from typing import Any

from remuda.capi import names as capi_names
from remuda.kube.definitions import WIDE, Definition, PrinterColumn, custom_resource_definition
from remuda.providers.shared.types.controlplane import AVAILABLE, READY, RKE_CONTROL_PLANE

_CONTRACTS = {capi_names.contract_label(contract): "v1" for contract in capi_names.CONTRACTS}


def _condition(name: str, type: str, doc: str) -> PrinterColumn:
    return PrinterColumn(name, f'.status.conditions[?(@.type=="{type}")].status', doc)


def _count(name: str, field: str, doc: str, priority: int = 0) -> PrinterColumn:
    return PrinterColumn(name, f".status.{field}", doc, "integer", priority)


DEFINITIONS = (
    Definition(
        kind=RKE_CONTROL_PLANE,
        short_names=("rcp",),
        categories=("cluster-api",),
        nullable=True,
        labels={**_CONTRACTS, capi_names.PROVIDER: "control-plane-remuda", capi_names.CLUSTERCTL: ""},
        columns=(
            PrinterColumn("Cluster", ".spec.clusterName", "The Cluster it is the control plane of"),
            PrinterColumn("Wanted", ".spec.kubernetesVersion", "The version that nodes should run"),
            PrinterColumn("Version", ".status.version", "The lowest version a node runs"),
            PrinterColumn(
                "Initialized",
                ".status.initialization.controlPlaneInitialized",
                "Whether the API has answered",
                "boolean",
            ),
            _count("Servers", "replicas", "How many control plane Machines there are"),
            _count("Servers Ready", "readyReplicas", "How many of them are ready"),
            _count("Servers Up-to-date", "upToDateReplicas", "How many of them match the spec", WIDE),
            _condition("Available", AVAILABLE, "Whether the API is served"),
            _condition("Ready", READY, "Whether the cluster is alive and every node matches the spec"),
            PrinterColumn("Reason", f'.status.conditions[?(@.type=="{READY}")].reason', "Why it is not, in one word"),
            PrinterColumn(
                "Message",
                f'.status.conditions[?(@.type=="{READY}")].message',
                "What it waits for, or what has failed",
                priority=WIDE,
            ),
            PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date"),
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
