"""The CustomResourceDefinitions of RKEBootstrap, its template, CustomMachine and RKECluster."""

from __future__ import annotations

from typing import Any

from remuda.capi import names as capi_names
from remuda.kube.definitions import WIDE, Definition, PrinterColumn, custom_resource_definition, label_path
from remuda.providers.shared.types.bootstrap import (
    AGENT_CONNECTED,
    CUSTOM_MACHINE,
    RKE_BOOTSTRAP,
    RKE_BOOTSTRAP_TEMPLATE,
)
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER

_BOOTSTRAP = "bootstrap-remuda"
_INFRASTRUCTURE = "infrastructure-remuda"
_CATEGORIES = ("cluster-api",)


def _labels(provider: str) -> dict[str, str]:
    contracts = {capi_names.contract_label(contract): "v1" for contract in capi_names.CONTRACTS}
    return {**contracts, capi_names.PROVIDER: provider, capi_names.CLUSTERCTL: ""}


def _condition(name: str, type: str, doc: str, priority: int = 0) -> PrinterColumn:
    return PrinterColumn(name, f'.status.conditions[?(@.type=="{type}")].status', doc, priority=priority)


_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date")
_PAUSED = _condition("Paused", "Paused", "Whether reconciliation is paused", WIDE)
_OF_CLUSTER = PrinterColumn("Cluster", label_path(capi_names.CLUSTER_NAME), "The Cluster it belongs to")

DEFINITIONS = (
    Definition(
        kind=RKE_CLUSTER,
        categories=_CATEGORIES,
        labels=_labels(_INFRASTRUCTURE),
        columns=(
            _OF_CLUSTER,
            PrinterColumn(
                "Provisioned", ".status.initialization.provisioned", "Whether machines may be created", "boolean"
            ),
            _PAUSED,
            _AGE,
        ),
    ),
    Definition(
        kind=RKE_BOOTSTRAP,
        categories=_CATEGORIES,
        labels=_labels(_BOOTSTRAP),
        columns=(
            PrinterColumn("Cluster", ".spec.clusterName", "The Cluster it belongs to"),
            _condition("Ready", "Ready", "Whether the bootstrap data is ready"),
            _condition("Connected", AGENT_CONNECTED, "Whether the host's agent has connected"),
            _PAUSED,
            _AGE,
        ),
    ),
    Definition(
        kind=RKE_BOOTSTRAP_TEMPLATE,
        categories=_CATEGORIES,
        labels=_labels(_BOOTSTRAP),
        status=False,
        columns=(PrinterColumn("Cluster", ".spec.clusterName", "The Cluster its machines belong to"), _AGE),
    ),
    Definition(
        kind=CUSTOM_MACHINE,
        categories=_CATEGORIES,
        labels=_labels(_INFRASTRUCTURE),
        columns=(
            _OF_CLUSTER,
            _condition("Ready", "Ready", "Whether the host has registered"),
            PrinterColumn(
                "ProviderID", ".spec.providerID", "The provider ID by which its Node is found", priority=WIDE
            ),
            _PAUSED,
            _AGE,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
