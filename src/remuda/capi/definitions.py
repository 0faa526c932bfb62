"""CustomResourceDefinitions of Cluster API's kinds: everything that their types do not express."""

from __future__ import annotations

from typing import Any

from remuda.capi import names
from remuda.capi.types import (
    CLUSTER,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_DRAIN_RULE,
    MACHINE_HEALTH_CHECK,
    MACHINE_SET,
)
from remuda.kube.definitions import WIDE, Definition, PrinterColumn, Scale, custom_resource_definition

_LABELS = {
    names.contract_label("v1beta2"): names.VERSION,
    names.PROVIDER: "cluster-api",
    names.CLUSTERCTL: "",  # `clusterctl move` looks for objects of definitions that have it
}
_CATEGORIES = ("cluster-api",)


def _condition(name: str, type: str, doc: str, priority: int = 0) -> PrinterColumn:
    return PrinterColumn(name, f'.status.conditions[?(@.type=="{type}")].status', doc, priority=priority)


def _count(name: str, path: str, doc: str, priority: int = 0) -> PrinterColumn:
    return PrinterColumn(name, path, doc, "integer", priority)


def _address(name: str, type: str, doc: str) -> PrinterColumn:
    return PrinterColumn(name, f'.status.addresses[?(@.type=="{type}")].address', doc, priority=WIDE)


_OF_CLUSTER = PrinterColumn("Cluster", ".spec.clusterName", "Cluster that the object belongs to")
_PAUSED = _condition("Paused", "Paused", "Whether reconciliation is paused", WIDE)
_PHASE = PrinterColumn("Phase", ".status.phase", "Summary of the conditions in one word")
_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since creation", "date")
_TEMPLATE_VERSION = PrinterColumn("Version", ".spec.template.spec.version", "Kubernetes version")
_REPLICAS = (
    _count("Desired", ".spec.replicas", "Desired number of Machines"),
    _count("Current", ".status.replicas", "Number of Machines"),
    _count("Ready", ".status.readyReplicas", "Number of ready Machines"),
    _count("Available", ".status.availableReplicas", "Number of available Machines"),
    _count("Up-to-date", ".status.upToDateReplicas", "Number of up-to-date Machines"),
)


def _counts(prefix: str, field: str, of: str) -> tuple[PrinterColumn, ...]:
    return (
        _count(f"{prefix} Desired", f".status.{field}.desiredReplicas", f"Desired number of {of} Machines"),
        _count(f"{prefix} Current", f".status.{field}.replicas", f"Number of {of} Machines", WIDE),
        _count(f"{prefix} Ready", f".status.{field}.readyReplicas", f"Number of ready {of} Machines", WIDE),
        _count(f"{prefix} Available", f".status.{field}.availableReplicas", f"Number of available {of} Machines"),
        _count(f"{prefix} Up-to-date", f".status.{field}.upToDateReplicas", f"Number of up-to-date {of} Machines"),
    )


DEFINITIONS = (
    Definition(
        kind=CLUSTER,
        short_names=("cl",),
        categories=_CATEGORIES,
        labels=_LABELS,
        columns=(
            PrinterColumn("ClusterClass", ".spec.topology.classRef.name", "ClusterClass; not supported"),
            _condition("Available", "Available", "Whether the cluster is available"),
            *_counts("CP", "controlPlane", "control plane"),
            *_counts("W", "workers", "worker"),
            _PAUSED,
            _PHASE,
            _AGE,
            PrinterColumn("Version", ".spec.topology.version", "Kubernetes version of a ClusterClass; not supported"),
        ),
    ),
    Definition(
        kind=MACHINE,
        short_names=("ma",),
        categories=_CATEGORIES,
        labels=_LABELS,
        columns=(
            _OF_CLUSTER,
            PrinterColumn("Node Name", ".status.nodeRef.name", "Node of the Machine"),
            PrinterColumn("Provider ID", ".spec.providerID", "Provider ID of the server", priority=WIDE),
            PrinterColumn("Failure domain", ".status.failureDomain", "Failure domain in which the server was placed"),
            _condition("Ready", "Ready", "Whether the Machine is ready"),
            _condition("Available", "Available", "Whether the Machine has been ready for minReadySeconds"),
            _condition("Up-to-date", "UpToDate", "Whether the Machine matches its owner's template"),
            _address("Internal-IP", "InternalIP", "Internal IP address"),
            _address("External-IP", "ExternalIP", "External IP address"),
            PrinterColumn("OS-Image", ".status.nodeInfo.osImage", "Operating system", priority=WIDE),
            _PAUSED,
            _PHASE,
            _AGE,
            PrinterColumn("Version", ".spec.version", "Kubernetes version"),
        ),
    ),
    Definition(
        kind=MACHINE_SET,
        short_names=("ms",),
        categories=_CATEGORIES,
        labels=_LABELS,
        scale=Scale(),
        columns=(_OF_CLUSTER, *_REPLICAS, _PAUSED, _AGE, _TEMPLATE_VERSION),
    ),
    Definition(
        kind=MACHINE_DEPLOYMENT,
        short_names=("md",),
        categories=_CATEGORIES,
        labels=_LABELS,
        scale=Scale(),
        columns=(
            _OF_CLUSTER,
            _condition("Available", "Available", "Whether enough Machines are available"),
            *_REPLICAS,
            _PAUSED,
            _PHASE,
            _AGE,
            _TEMPLATE_VERSION,
        ),
    ),
    Definition(
        kind=MACHINE_HEALTH_CHECK,
        short_names=("mhc", "mhcs"),
        categories=_CATEGORIES,
        labels=_LABELS,
        columns=(
            _OF_CLUSTER,
            _count("Replicas", ".status.expectedMachines", "Number of checked Machines"),
            _count("Healthy", ".status.currentHealthy", "Number of healthy Machines"),
            _PAUSED,
            _AGE,
        ),
    ),
    Definition(
        kind=MACHINE_DRAIN_RULE,
        categories=_CATEGORIES,
        labels=_LABELS,
        status=False,
        columns=(
            PrinterColumn("Behavior", ".spec.drain.behavior", "Drain behavior for the Pods"),
            PrinterColumn("Order", ".spec.drain.order", "Pods with a lower order are evicted first"),
            _AGE,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Return the definitions, ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
