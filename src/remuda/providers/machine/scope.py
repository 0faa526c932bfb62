"""Scope of one reconcile of a `<Driver>Machine`: the machine as read, and related objects from the caches."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.jobs.types import Job
from remuda.kube import conditions
from remuda.kube.authorization import Subject
from remuda.kube.errors import NotFound
from remuda.kube.objects import Key, Kind
from remuda.providers.machine import addresses
from remuda.providers.machine.options import OptionModel
from remuda.providers.machine.pools import PoolName, Pools, pool_of
from remuda.providers.shared import author, names
from remuda.providers.shared.drivers.spi import Needs, Order
from remuda.providers.shared.jobs import job_spec, job_start, manifests, state
from remuda.providers.shared.jobs.job_context import JobContext
from remuda.providers.shared.jobs.job_spec import Action
from remuda.providers.shared.jobs.job_start import JobInputs, Missing, check_author, credential_fields
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.bootstrap import AGENT_CONNECTED, RKE_BOOTSTRAP
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import CREATE_JOB, NODE_DRIVER, DriverMachine, machine_kind, template_kind
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.steps import Step

FINALIZER = "remuda.dev/machine"


class FoundDriver(msgspec.Struct, frozen=True, kw_only=True):
    """Driver that is available, with its options."""

    name: str
    model: OptionModel
    local: bool = False  # only our own runner can run its Jobs
    needs: Needs = Needs()  # what its Jobs may do on the machine of our own runner
    own_loopback: bool = False  # its servers cannot reach a manager on loopback
    program: Mapping[str, str] = {}  # of a driver that is a program: how a Job gets it

    @property
    def kind(self) -> Kind[DriverMachine]:
        return machine_kind(self.name)


class MachineContext(JobContext):
    """State shared by the controllers of all drivers. Create it before the caches start."""

    def __init__(self, manager: Manager, settings: MachineSettings) -> None:
        super().__init__(manager, settings)
        self.machines = manager.caches.of(MACHINE)
        self.clusters = manager.caches.of(CLUSTER)
        self.bootstraps = manager.caches.of(RKE_BOOTSTRAP)
        self.pools = Pools(manager, settings.rules, self.jobs)

    async def state(self, machine: DriverMachine) -> state.State | None:
        """As the server has it now: a Job's last words are there before the Job's end is known. None: no Secret.
        Raises ValueError."""
        data = await self.secret(machine.metadata.namespace, names.state_secret(machine.metadata.name))
        return None if data is None else state.read(data)

    async def allows_local_addresses(self, driver: str) -> bool:
        """Return True if an administrator lets Jobs of the driver connect to this machine. Asks for each Job."""
        try:
            value = await self.client.get(NODE_DRIVER.target, "", driver)
        except NotFound:
            return False
        return addresses.allowed_by(NODE_DRIVER.decode(value).metadata.annotations)


class InfraMachineScope:
    def __init__(self, world: MachineContext, driver: FoundDriver, value: bytes) -> None:
        self.world = world
        self.driver = driver
        self.load(value)

    async def save(self, step: Step) -> None:
        """Write the draft and load the resulting object."""
        value = await save(self.world.client, self.draft, step)
        if value is not self.draft.value:
            self.load(value)

    def load(self, value: bytes) -> None:
        """Load the current machine; discard the previous draft."""
        world = self.world
        self.draft = Draft(self.driver.kind.target, value)
        self.machine = self.driver.kind.decode(value)
        metadata = self.machine.metadata
        ref = metadata.owner("Machine", capi_names.GROUP)
        self.owner: Machine | None = None if ref is None else world.machines.get(metadata.namespace, ref.name)
        self.cluster: Cluster | None = world.clusters.get(metadata.namespace, self.cluster_name)

    @property
    def cluster_name(self) -> str:
        labels = self.machine.metadata.labels
        if self.owner is not None:
            return self.owner.spec.cluster_name
        return labels.get(names.CLUSTER_NAME) or labels.get(capi_names.CLUSTER_NAME, "")

    @property
    def job(self) -> Job | None:
        return self.world.job(self.place)

    @property
    def pool(self) -> PoolName:
        metadata = self.machine.metadata
        if self.owner is not None:
            return pool_of(self.owner)
        return PoolName(metadata.namespace, self.cluster_name or metadata.name, CLUSTER)

    @property
    def inputs(self) -> JobInputs:
        return JobInputs(self.world.client, self.world.settings, self.place, self.job)

    @property
    def place(self) -> manifests.JobOwner:
        return manifests.JobOwner(self.driver.kind, self.machine.metadata, self.cluster_name)

    @property
    def made(self) -> bool:
        """Return whether the create Job has succeeded."""
        return conditions.is_true(self.machine.status.conditions, CREATE_JOB)

    @property
    def asked(self) -> bool:
        """Return whether a server may have been requested: the condition is written before the first Job."""
        found = conditions.find(self.machine.status.conditions, CREATE_JOB)
        return found is not None or bool(self.machine.spec.provider_id) or self.job is not None

    @property
    def credential(self) -> str:
        return self.machine.spec.common.cloud_credential_secret_name

    async def credential_fields(self) -> Mapping[str, bytes]:
        """Raises Missing."""
        return await credential_fields(self.world, self.credential, self.machine.metadata.namespace, str(self))

    async def protect(self) -> None:
        """Keep the Secrets that the removal of the server will need. Costs nothing where they are kept already."""
        await self.world.protect(Key(self.machine.metadata.namespace, self.place.state))
        await self.protect_credential()

    async def protect_credential(self) -> None:
        await job_start.protect_credential(self.world, self.credential, self.machine.metadata.namespace)

    async def check_author(self) -> None:
        """Raises Missing."""
        if self.credential:
            await check_author(self.world, await self._author(), self.credential, self.machine, str(self))

    async def _author(self) -> Subject | None:
        """Return the user who chose the credential. Raises Missing.

        A machine that the manager has cloned has the author of its template, which a user with the right to the
        credential can take over while the machine waits."""
        metadata = self.machine.metadata
        found, template = author.of(metadata.annotations), metadata.annotations.get(capi_names.CLONED_FROM_NAME)
        if found is not None or not template:
            return found
        kind = template_kind(self.driver.name)
        try:
            value = await self.world.client.get(kind.target, metadata.namespace, template)
        except NotFound:
            on = f"{kind.name} {metadata.namespace}/{template}"
            message = f"{on} was deleted, so the user who chose the credential of {self} is unknown; delete the Machine"
            raise Missing("TemplateNotFound", on, message) from None
        return author.of(kind.decode(value).metadata.annotations)

    async def order(self, action: Action) -> Order:
        return job_spec.order(
            action,
            self.driver.name,
            self.machine.metadata,
            self.draft.spec,
            cluster=self.cluster_name,
            owner=await self.world.owner(),
            program=self.driver.program,
            network=await self._network() if action == "create" else {},
            local_addresses=self.driver.local or await self.world.allows_local_addresses(self.driver.name),
        )

    async def _network(self) -> Mapping[str, str]:
        """Return the network that the same driver has created for the cluster as a whole."""
        ref = self.cluster.spec.infrastructure_ref if self.cluster is not None else None
        if ref is None or (ref.api_group, ref.kind) != (RKE_CLUSTER.group, RKE_CLUSTER.name):
            return {}
        try:
            value = await self.world.client.get(RKE_CLUSTER.target, self.machine.metadata.namespace, ref.name)
        except NotFound:
            return {}
        made = RKE_CLUSTER.decode(value).status.infrastructure
        return made.network if made is not None and made.driver == self.driver.name else {}

    @property
    def agent_connected(self) -> bool | None:
        """Return whether the host's agent has connected; None if the host will not run our agent."""
        ref = self.owner.spec.bootstrap.config_ref if self.owner is not None else None
        if ref is None or ref.kind != RKE_BOOTSTRAP.name or ref.api_group != RKE_BOOTSTRAP.group:
            return None
        found = self.world.bootstraps.get(self.machine.metadata.namespace, ref.name)
        return found is not None and conditions.is_true(found.status.conditions, AGENT_CONNECTED)

    def __str__(self) -> str:
        return f"{self.driver.kind.name} {self.machine.key}"
