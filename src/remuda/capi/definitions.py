"""The CustomResourceDefinitions of the kinds of Cluster API: what their types do not say."""

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
from remuda.kube.definitions import WIDE, Column, Definition, Scale, custom_resource_definition

_LABELS = {
    names.contract_label("v1beta2"): names.VERSION,
    names.PROVIDER: "cluster-api",
    names.CLUSTERCTL: "",  # `clusterctl move` looks for objects of definitions that have it
}
_CATEGORIES = ("cluster-api",)


def _condition(name: str, type: str, doc: str, priority: int = 0) -> Column:
    return Column(name, f'.status.conditions[?(@.type=="{type}")].status', doc, priority=priority)


def _count(name: str, path: str, doc: str, priority: int = 0) -> Column:
    return Column(name, path, doc, "integer", priority)


def _address(name: str, type: str, doc: str) -> Column:
    return Column(name, f'.status.addresses[?(@.type=="{type}")].address', doc, priority=WIDE)


_OF_CLUSTER = Column("Cluster", ".spec.clusterName", "The Cluster it belongs to")
_PAUSED = _condition("Paused", "Paused", "Whether it is left alone", WIDE)
_PHASE = Column("Phase", ".status.phase", "The conditions in one word")
_AGE = Column("Age", ".metadata.creationTimestamp", "Time since it was created", "date")
_TEMPLATE_VERSION = Column("Version", ".spec.template.spec.version", "The Kubernetes version")
_REPLICAS = (
    _count("Desired", ".spec.replicas", "How many Machines are wanted"),
    _count("Current", ".status.replicas", "How many Machines there are"),
    _count("Ready", ".status.readyReplicas", "How many Machines are ready"),
    _count("Available", ".status.availableReplicas", "How many Machines are available"),
    _count("Up-to-date", ".status.upToDateReplicas", "How many Machines are as they shall be"),
)


def _counts(prefix: str, field: str, of: str) -> tuple[Column, ...]:
    return (
        _count(f"{prefix} Desired", f".status.{field}.desiredReplicas", f"How many {of} Machines are wanted"),
        _count(f"{prefix} Current", f".status.{field}.replicas", f"How many {of} Machines there are", WIDE),
        _count(f"{prefix} Ready", f".status.{field}.readyReplicas", f"How many {of} Machines are ready", WIDE),
        _count(f"{prefix} Available", f".status.{field}.availableReplicas", f"How many {of} Machines are available"),
        _count(
            f"{prefix} Up-to-date", f".status.{field}.upToDateReplicas", f"How many {of} Machines are as they shall be"
        ),
    )


DEFINITIONS = (
    Definition(
        kind=CLUSTER,
        short_names=("cl",),
        categories=_CATEGORIES,
        labels=_LABELS,
        columns=(
            Column("ClusterClass", ".spec.topology.classRef.name", "Its ClusterClass; not supported"),
            _condition("Available", "Available", "Whether the cluster can be used"),
            *_counts("CP", "controlPlane", "control plane"),
            *_counts("W", "workers", "worker"),
            _PAUSED,
            _PHASE,
            _AGE,
            Column("Version", ".spec.topology.version", "The Kubernetes version of a ClusterClass; not supported"),
        ),
    ),
    Definition(
        kind=MACHINE,
        short_names=("ma",),
        categories=_CATEGORIES,
        labels=_LABELS,
        columns=(
            _OF_CLUSTER,
            Column("Node Name", ".status.nodeRef.name", "The Node it became"),
            Column("Provider ID", ".spec.providerID", "The server's identity", priority=WIDE),
            Column("Failure domain", ".status.failureDomain", "Where the server was placed"),
            _condition("Ready", "Ready", "Whether the Machine works"),
            _condition("Available", "Available", "Whether it has worked for long enough"),
            _condition("Up-to-date", "UpToDate", "Whether it is as its owner wants it"),
            _address("Internal-IP", "InternalIP", "Its address inside"),
            _address("External-IP", "ExternalIP", "Its address outside"),
            Column("OS-Image", ".status.nodeInfo.osImage", "Its operating system", priority=WIDE),
            _PAUSED,
            _PHASE,
            _AGE,
            Column("Version", ".spec.version", "The Kubernetes version"),
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
            _count("Replicas", ".status.expectedMachines", "How many Machines are watched"),
            _count("Healthy", ".status.currentHealthy", "How many of them are healthy"),
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
            Column("Behavior", ".spec.drain.behavior", "What is done with the Pods"),
            Column("Order", ".spec.drain.order", "Lower goes first"),
            _AGE,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
