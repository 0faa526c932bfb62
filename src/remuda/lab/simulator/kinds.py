"""Kinds of the simulated provider, twice: one family follows the v1beta2 contract, the other the v1beta1 contract.

Both families have the same kinds with the same specs. They differ where the contracts differ: in statuses, and in the
field where a control plane names its machine template.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.capi import names
from remuda.kube.definitions import Definition, PrinterColumn, Scale, custom_resource_definition
from remuda.kube.objects import Kind, Object
from remuda.lab.simulator import types

GROUP = "simulator.remuda.dev"
OLD_GROUP = f"v1beta1.{GROUP}"
VERSION = "v1alpha1"
PROVIDER = "infrastructure-simulator"


class Family(NamedTuple):
    """Kinds of one group."""

    group: str
    contract: str
    cluster: Kind[Any]
    control_plane: Kind[Any]
    machine: Kind[Any]
    machine_template: Kind[Any]
    bootstrap: Kind[Any]
    bootstrap_template: Kind[Any]
    remediation: Kind[Any]
    remediation_template: Kind[Any]

    @property
    def kinds(self) -> tuple[Kind[Any], ...]:
        return self[2:]

    @property
    def old(self) -> bool:
        return self.contract == "v1beta1"


def _family(group: str, contract: str, *objects: type[Object]) -> Family:
    def kind(type: type[Object]) -> Kind[Any]:
        name = type.__name__.removeprefix("Old")
        return Kind(f"{group}/{VERSION}", name, f"{name.lower()}s", type)

    return Family(group, contract, *(kind(type) for type in objects))


NEW = _family(
    GROUP,
    "v1beta2",
    types.SimulatedCluster,
    types.SimulatedControlPlane,
    types.SimulatedMachine,
    types.SimulatedMachineTemplate,
    types.SimulatedBootstrap,
    types.SimulatedBootstrapTemplate,
    types.SimulatedRemediation,
    types.SimulatedRemediationTemplate,
)
OLD = _family(
    OLD_GROUP,
    "v1beta1",
    types.OldSimulatedCluster,
    types.OldSimulatedControlPlane,
    types.OldSimulatedMachine,
    types.SimulatedMachineTemplate,
    types.OldSimulatedBootstrap,
    types.SimulatedBootstrapTemplate,
    types.SimulatedRemediation,
    types.SimulatedRemediationTemplate,
)
FAMILIES = (NEW, OLD)

_CLUSTER = PrinterColumn("Cluster", f".metadata.labels.{names.CLUSTER_NAME.replace('.', chr(92) + '.')}", "Its Cluster")
_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date")


def definitions() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of both families, ready to be installed."""
    return [custom_resource_definition(_definition(family, kind)) for family in FAMILIES for kind in family.kinds]


def _definition(family: Family, kind: Kind[Any]) -> Definition:
    return Definition(
        kind=kind,
        categories=("cluster-api",),
        labels={
            names.contract_label(family.contract): VERSION,
            names.PROVIDER: PROVIDER,
            names.CLUSTERCTL: "",
        },
        columns=(_CLUSTER, _AGE),
        status="status" in kind.type.__struct_fields__,
        scale=Scale() if kind is family.control_plane else None,
    )
