"""Scope of one reconcile of an RKECluster: the object as read, and related objects from the caches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import members
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.jobs.types import Job
from remuda.kube.errors import NotFound
from remuda.kube.objects import Key
from remuda.providers.infrastructure import endpoint
from remuda.providers.shared import author, distros, names
from remuda.providers.shared.drivers.spi import ClusterOrder
from remuda.providers.shared.jobs import job_spec
from remuda.providers.shared.jobs.job_context import JobContext
from remuda.providers.shared.jobs.job_start import JobInputs, check_author, credential_fields, protect_credential
from remuda.providers.shared.jobs.manifests import JobOwner
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER, Infrastructure, InfrastructureStatus, RKECluster
from remuda.runtime.draft import Draft, save
from remuda.runtime.steps import Step

_LONGEST_NAME = 50  # maximum length, without the suffix that distinguishes two clusters with the same name


def cluster_name(obj: RKECluster) -> str:
    """Return the name of the Cluster that owns it, also when that is gone."""
    owner = obj.metadata.owner("Cluster", capi_names.GROUP)
    return owner.name if owner is not None else obj.metadata.labels.get(capi_names.CLUSTER_NAME, "")


class InfrastructureScope:
    def __init__(self, context: JobContext, value: bytes) -> None:
        self.context = context
        self.load(value)

    def load(self, value: bytes) -> None:
        self.draft = Draft(RKE_CLUSTER.target, value)
        self.obj = RKE_CLUSTER.decode(value)
        caches, metadata = self.context.manager.caches, self.obj.metadata
        owner = metadata.owner("Cluster", capi_names.GROUP)
        self.cluster_name = cluster_name(self.obj)
        found = None if owner is None else caches.of(CLUSTER).get(metadata.namespace, owner.name)
        same = found is not None and owner is not None and found.metadata.uid == owner.uid
        self.cluster: Cluster | None = found if same else None

    async def save(self, act: Step) -> None:
        """Write the draft and load the resulting object."""
        value = await save(self.context.client, self.draft, act)
        if value is not self.draft.value:
            self.load(value)

    @property
    def machines(self) -> list[Machine]:
        """Return all Machines of the cluster, also after the Cluster itself is deleted."""
        return members(self.context.manager.caches, MACHINE, Key(self.obj.metadata.namespace, self.cluster_name))

    @property
    def place(self) -> JobOwner:
        return JobOwner(RKE_CLUSTER, self.obj.metadata, self.cluster_name or self.obj.metadata.name, "cluster")

    @property
    def job(self) -> Job | None:
        return self.context.job(self.place)

    @property
    def inputs(self) -> JobInputs:
        return JobInputs(self.context.client, self.context.settings, self.place, self.job)

    @property
    def wanted(self) -> Infrastructure:
        """Return the desired infrastructure; if it is no longer desired, what is known of it."""
        return self.obj.spec.infrastructure or Infrastructure(driver=self.known.driver)

    @property
    def known(self) -> InfrastructureStatus:
        return self.obj.status.infrastructure or InfrastructureStatus()

    async def credential_fields(self) -> Mapping[str, bytes]:
        """Raises Missing."""
        reference = self.wanted.cloud_credential_secret_name
        return await credential_fields(self.context, reference, self.obj.metadata.namespace, str(self))

    async def protect(self) -> None:
        """Keep the Secrets that the removal of the infrastructure will need."""
        await self.context.protect(Key(self.obj.metadata.namespace, self.place.state))
        await self.protect_credential()

    async def protect_credential(self) -> None:
        reference, namespace = self.wanted.cloud_credential_secret_name, self.obj.metadata.namespace
        await protect_credential(self.context, reference, namespace)

    async def check_author(self) -> None:
        """Raises Missing."""
        metadata, reference = self.obj.metadata, self.wanted.cloud_credential_secret_name
        await check_author(self.context, author.of(metadata.annotations), reference, self.obj, str(self))

    async def order(self) -> ClusterOrder:
        """Return the current order; its action is `remove` if the object is being deleted."""
        metadata = self.obj.metadata
        uid = job_spec.identity(metadata).rpartition("/")[2]
        deleting = metadata.deleting
        piece = hashlib.sha256(uid.encode()).hexdigest()[:8]
        return ClusterOrder(
            driver=self.wanted.driver,
            action="remove" if deleting else "ensure",
            name=f"{names.shorten(metadata.name.replace('.', '-'), _LONGEST_NAME)}-{piece}",
            namespace=metadata.namespace,
            cluster=metadata.name,
            uid=uid,
            owner=await self.context.owner(),
            options=self.wanted.options,
            backends=[] if deleting else backends(self.machines),
            ports=[] if deleting else await self._ports(),
            state_secret=self.place.state,
        )

    async def _ports(self) -> list[int]:
        """Return the ports of the control plane's machines: the API's first, then the one where nodes join."""
        ref = self.cluster.spec.control_plane_ref if self.cluster is not None else None
        if ref is None or (ref.api_group, ref.kind) != (RKE_CONTROL_PLANE.group, RKE_CONTROL_PLANE.name):
            return [endpoint.API_PORT]
        try:
            value = await self.context.client.get(RKE_CONTROL_PLANE.target, self.obj.metadata.namespace, ref.name)
            version = distros.parse_version(RKE_CONTROL_PLANE.decode(value).spec.kubernetes_version)
        except distros.BadVersion:
            return [endpoint.API_PORT]
        except NotFound:
            return [endpoint.API_PORT]
        distro = distros.of(version)
        return list(dict.fromkeys((distro.api_port, distro.supervisor_port)))

    def __str__(self) -> str:
        return f"RKECluster {self.obj.key}"


def backends(machines: Sequence[Machine]) -> list[str]:
    """Addresses of the control plane's machines, from inside; those on their way out only while there are no others."""
    known = [(machine, _inside(machine)) for machine in machines if machine.is_control_plane]
    there = [(machine, address) for machine, address in known if address]
    staying = [address for machine, address in there if not machine.metadata.deleting]
    return sorted(set(staying or [address for _, address in there]))


def _inside(machine: Machine) -> str:
    found = [one.address for one in machine.status.addresses if one.type == "InternalIP"]
    return found[0] if found else next(iter(endpoint.addresses(machine)), "")


def digest(order: ClusterOrder) -> str:
    """Return the digest of those fields of an order whose change makes it a different order."""
    content = msgspec.json.encode([order.driver, order.options, order.backends, order.ports], order="sorted")
    return hashlib.sha256(content).hexdigest()[:16]
