"""Inventory for `clusterctl`: the providers installed on a server, and the kinds it reads without checking for them.

The inventory has one object per provider, normally written by the installer of the providers; here each program records
the providers it runs. An existing entry stays unchanged, unless the version of this program has changed. Kinds that
`clusterctl` reads and Remuda does not support are served too: their lists are always empty, and a create returns an
error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from remuda.capi import names
from remuda.kube.client import Client, Target
from remuda.kube.definitions import OWNER, OWNERSHIP_LABEL, Definition, PrinterColumn, custom_resource_definition
from remuda.kube.errors import AlreadyExists, ignore_not_found
from remuda.kube.objects import Field, Kind, Object
from remuda.kube.schema import Rule
from remuda.runtime.definitions import ForeignDefinitions
from remuda.runtime.definitions import install as install_definitions
from remuda.runtime.steps import step

NOTE = step("inventory.note", "records an installed provider in the inventory of clusterctl")

NAMESPACE = "remuda-system"
# The release of Cluster API whose kinds these are. A cluster moves only to where its providers are not older.
CORE_VERSION = "v1.14.0"

_CORE_LABEL = "clusterctl.cluster.x-k8s.io/core"
_INVENTORY = "inventory"
_NAMESPACES = Target("v1", "namespaces")

ProviderType = Literal["CoreProvider", "InfrastructureProvider", "BootstrapProvider", "ControlPlaneProvider"]
_PREFIXES: Mapping[ProviderType, str] = {
    "CoreProvider": "",
    "InfrastructureProvider": "infrastructure-",
    "BootstrapProvider": "bootstrap-",
    "ControlPlaneProvider": "control-plane-",
}


class Provider(Object):
    """Installed provider."""

    provider_name: Annotated[str, Field("Name.")] = ""
    type: Annotated[str, Field("Type of the provider.")] = ""
    version: Annotated[str, Field("Version.")] = ""
    watched_namespace: Annotated[str, Field("Namespace that the provider watches; empty for all namespaces.")] = ""


class MachinePool(Object):
    """Machines managed by their infrastructure: not supported."""

    spec: Annotated[
        Mapping[str, object],
        Field(
            required=True,
            preserve_unknown=True,
            rules=(Rule(rule="false", message="MachinePools are not supported: use a MachineDeployment"),),
        ),
    ] = {}


PROVIDER = Kind("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", "providers", Provider)
MACHINE_POOL = Kind(names.API_VERSION, "MachinePool", "machinepools", MachinePool)

_INVENTORY_DEFINITION = Definition(
    kind=PROVIDER,
    categories=("cluster-api",),
    labels={_CORE_LABEL: _INVENTORY},
    status=False,
    columns=(
        PrinterColumn("Age", ".metadata.creationTimestamp", "Time since installation", "date"),
        PrinterColumn("Type", ".type"),
        PrinterColumn("Provider", ".providerName"),
        PrinterColumn("Version", ".version"),
    ),
)
# Only where the core is ours.
_NOT_OURS = Definition(
    kind=MACHINE_POOL,
    labels={names.contract_label("v1beta2"): names.VERSION, names.PROVIDER: "cluster-api", names.CLUSTERCTL: ""},
    status=False,
)


class ProviderEntry(NamedTuple):
    """Provider to record."""

    type: ProviderType
    name: str
    version: str

    @property
    def label(self) -> str:
        """Return the label value of the provider's objects, which is also the name of its inventory entry."""
        return _PREFIXES[self.type] + self.name


CORE = ProviderEntry("CoreProvider", "cluster-api", CORE_VERSION)


async def install(client: Client, *entries: ProviderEntry) -> None:
    """Record the providers. Definitions and entries of other programs stay as they are."""
    if not entries:
        return
    for definition in (_INVENTORY_DEFINITION, *((_NOT_OURS,) if CORE in entries else ())):
        try:
            await install_definitions(client, [custom_resource_definition(definition)])
        except ForeignDefinitions:
            continue  # clusterctl's own, or upstream's: usable as well
    await _create_if_missing(client, _NAMESPACES, "", _namespace())
    noted = [PROVIDER.decode(item) for item in (await client.list(PROVIDER.target)).items]
    for entry in entries:
        await _note(client, entry, noted)


async def _note(client: Client, entry: ProviderEntry, noted: Sequence[Provider]) -> None:
    present = next((one for one in noted if (one.type, one.provider_name) == (entry.type, entry.name)), None)
    if present is None:
        await _create_if_missing(client, PROVIDER.target, NAMESPACE, _provider(entry))
    elif present.version != entry.version and present.metadata.labels.get(OWNERSHIP_LABEL) == OWNER:
        async with NOTE:
            await client.patch(PROVIDER.target, *present.key, {"version": entry.version})


async def _create_if_missing(client: Client, target: Target, namespace: str, obj: dict[str, Any]) -> None:
    with ignore_not_found():
        await client.get(target, namespace, obj["metadata"]["name"])
        return
    with contextlib.suppress(AlreadyExists):  # another replica was faster
        async with NOTE:
            await client.create(target, namespace, obj)


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def _provider(entry: ProviderEntry) -> dict[str, Any]:
    labels = {
        names.CLUSTERCTL: "",
        names.PROVIDER: entry.label,
        _CORE_LABEL: _INVENTORY,
        OWNERSHIP_LABEL: OWNER,
    }
    provider = Provider(
        api_version=PROVIDER.api_version,
        kind=PROVIDER.name,
        provider_name=entry.name,
        type=entry.type,
        version=entry.version,
    )
    fields: dict[str, Any] = msgspec.to_builtins(provider)
    return fields | {"metadata": {"name": entry.label, "namespace": NAMESPACE, "labels": labels}}
