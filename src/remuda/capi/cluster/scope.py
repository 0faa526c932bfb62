"""Scope of one reconcile of a Cluster: all objects are read first, and only the draft is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remuda.capi import names
from remuda.capi.contract import Json, ProviderObject
from remuda.capi.external import Externals, ProviderReference
from remuda.capi.types import CLUSTER, Cluster, Machine, MachineDeployment, MachineSet
from remuda.kube.objects import Key, OwnerReference
from remuda.runtime.draft import Draft
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import Connection


class ProviderLookup(NamedTuple):
    """Result of looking up a provider's object: the object, nothing, or the error that prevented the lookup.

    With both an object and an error, the object exists but breaks the contract.
    """

    ref: ProviderReference | None = None
    obj: ProviderObject | None = None
    error: Exception | None = None

    @property
    def absent(self) -> bool:
        """Return whether the object is referenced and certainly does not exist."""
        return self.ref is not None and self.obj is None and self.error is None

    def __str__(self) -> str:
        return f"{self.ref.kind} {self.ref.name}" if self.ref is not None else "nothing"


async def look(externals: Externals, ref: ProviderReference | None, namespace: str) -> ProviderLookup:
    if ref is None or not ref.name:
        return ProviderLookup()
    try:
        return ProviderLookup(ref, await externals.get(ref, namespace))
    except Retryable as error:
        return ProviderLookup(ref, error=error)


class ClusterMembers(NamedTuple):
    """Objects that belong to the Cluster: MachineDeployments, MachineSets and Machines."""

    deployments: Sequence[MachineDeployment] = ()
    sets: Sequence[MachineSet] = ()
    machines: Sequence[Machine] = ()

    @property
    def control_plane(self) -> list[Machine]:
        return [machine for machine in self.machines if is_control_plane(machine)]

    @property
    def workers(self) -> list[Machine]:
        return [machine for machine in self.machines if not is_control_plane(machine)]

    @property
    def control_plane_deployments(self) -> list[MachineDeployment]:
        """Return the MachineDeployments of the control plane, if its provider uses them."""
        return [one for one in self.deployments if _makes_control_plane(one)]

    @property
    def worker_deployments(self) -> list[MachineDeployment]:
        return [one for one in self.deployments if not _makes_control_plane(one)]

    @property
    def lone_sets(self) -> list[MachineSet]:
        """Return the MachineSets without a MachineDeployment."""
        return [one for one in self.sets if one.metadata.controller is None]


def is_control_plane(machine: Machine) -> bool:
    return names.CONTROL_PLANE in machine.metadata.labels


def _makes_control_plane(deployment: MachineDeployment) -> bool:
    return names.CONTROL_PLANE in deployment.spec.template.metadata.labels


class ClusterScope:
    def __init__(
        self,
        value: bytes,
        infrastructure: ProviderLookup,
        control_plane: ProviderLookup,
        members: ClusterMembers,
        connection: Connection,
    ) -> None:
        self.cluster: Cluster = CLUSTER.decode(value)
        self.draft = Draft(CLUSTER.target, value)
        self.infrastructure = infrastructure
        self.control_plane = control_plane
        self.members = members
        self.connection = connection

    @property
    def key(self) -> Key:
        return self.cluster.key

    @property
    def owner(self) -> OwnerReference:
        """Return the Cluster as owner of its objects."""
        metadata = self.cluster.metadata
        return OwnerReference(api_version=CLUSTER.api_version, kind=CLUSTER.name, name=metadata.name, uid=metadata.uid)

    @property
    def provisioned(self) -> bool:
        """Return whether the infrastructure is provisioned, as of this reconcile and not only of the last."""
        return bool(self._initialization.get("infrastructureProvisioned"))

    @property
    def initialized(self) -> bool:
        return bool(self._initialization.get("controlPlaneInitialized"))

    def mark(self, flag: str) -> None:
        """Set one of the flags that are never reset."""
        self.draft.status.setdefault("initialization", {})[flag] = True

    @property
    def _initialization(self) -> Json:
        return self.draft.status.get("initialization") or {}

    @property
    def endpoint_known(self) -> bool:
        endpoint = self.draft.spec.get("controlPlaneEndpoint") or {}
        return bool(endpoint.get("host") and endpoint.get("port"))
