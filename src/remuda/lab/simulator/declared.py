"""A world of declared clusters in virtual time: the real engine and all real controllers, provisioning, Cluster API's
own and every provider's, on servers of the driver `sim` that are model hosts.

    async def scenario(world: DeclaredWorld) -> None:
        await world.declare("c", [pool("servers", 3, "etcd", "controlPlane"), pool("workers", 2, "worker")])
        await world.ready("c")
        await world.edit("c", {"kubernetesVersion": "v1.36.5+k3s1"})
        await world.ready("c")

    simulate_declared(scenario, seed=7)

Jobs of machines are tasks of the same loop. `broken()` says what the models hold against the controllers.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from remuda.apiserver.server import ApiServer
from remuda.apiserver.storage.types import StoreEvent
from remuda.capi import admission as core_admission
from remuda.capi import setup as core
from remuda.capi.types import MACHINE
from remuda.jobs.in_process import InProcess
from remuda.jobs.marks import JobKey
from remuda.jobs.runner import JobRunner
from remuda.jobs.runner import JobRunnerSettings as JobSettings
from remuda.kube import clock, conditions
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, Kind
from remuda.lab.simulator import agents
from remuda.lab.simulator.downstream import Downstream
from remuda.lab.simulator.hosts import ModelHost
from remuda.lab.simulator.judge import Judge
from remuda.lab.simulator.model_hosts import ModelHosts
from remuda.lab.simulator.world import PATIENCE_SECONDS, World, tell
from remuda.providers import setup as providers
from remuda.providers.bootstrap.registration import RegistrationService
from remuda.providers.controlplane import hosts as roles
from remuda.providers.machine import job
from remuda.providers.shared import secrets
from remuda.providers.shared.drivers import sim
from remuda.providers.shared.drivers.simcloud import SimCloud
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.providers.shared.types.machine import NODE_DRIVER, config_kind, machine_kind
from remuda.provisioning import admission as provisioning_admission
from remuda.provisioning import setup as provisioning
from remuda.provisioning.types import CLUSTER, Cluster
from remuda.runtime.manager import Manager

NAMESPACE = provisioning.WORKSPACES[0]
VERSION = "v1.36.4+k3s1"
CONFIG, SERVER = config_kind("sim"), machine_kind("sim")
_PLANES = f"{RKE_CONTROL_PLANE.plural}.{RKE_CONTROL_PLANE.group}"
ADMISSION = (*core_admission.FUNCTIONS, *providers.ADMISSION, *provisioning_admission.FUNCTIONS)

Json = dict[str, Any]
T = TypeVar("T")


def pool(name: str, quantity: int, *held: str, **more: Any) -> Json:
    """Return a machine pool. `held`: its roles, of etcd, controlPlane and worker. The pools of a cluster share a
    SimConfig of its name.
    """
    return {"name": name, "quantity": quantity, **{f"{role}Role": True for role in held}, **more}


def _configured(cluster: str, pools: Sequence[Json]) -> list[Json]:
    return [{**one, "machineConfigRef": {"kind": CONFIG.name, "name": cluster}} for one in pools]


class DeclaredWorld(World):
    server_kinds: Sequence[Kind[Any]] = ()

    def __init__(self, server: ApiServer, *, catch_up_seconds: float = 0.0, boot_seconds: float = 10.0) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="remuda-declared-")
        self._site = Site(server_url=server.url, ca_pem=server.pki.ca_certificate_pem)
        self._boot_seconds = boot_seconds
        self._job_key = JobKey(bytes(32))  # the same in every run: a simulation needs no secret
        self.registration: RegistrationService
        self.judge = Judge()
        self.herd = ModelHosts(self.judge, lambda: self.registration, catch_up_seconds)
        self.servers = SimCloud(keeps_user_data=False)
        self.servers.listen(self.herd)
        super().__init__(server, catch_up_seconds=catch_up_seconds)
        self._declared, self._planes = self._view.of(CLUSTER), self._view.of(RKE_CONTROL_PLANE)
        self._agents = Manager(server.client(field_manager="agents"), name="agents", interval=0.0)
        following = agents.Agents(self._agents, self.herd, self.herd.listens, label_selector=secrets.LABEL)
        self.herd.look = following.look

    def _new_manager(self) -> Manager:
        manager = Manager(self._server.client(), name="world")
        remote = core.add_controllers(manager, dial=self.herd.dial)
        provisioning.add(manager)
        machine = MachineSettings(job_key=self._job_key)
        settings = providers.ProviderSettings(site=self._site, machine=machine, silence=self.herd.silence(clock.time()))
        added = providers.add(manager, settings, remote=remote)
        assert added.registration is not None
        self.registration = added.registration
        folder = Path(self._folder.name)
        jobs = JobSettings(
            directory=folder / "jobs",
            hosts=folder / "hosts",
            server_url=self._site.server_url,
            ca_pem=self._site.ca_pem,
            key=self._job_key,
            concurrency=32,
        )
        JobRunner(manager, jobs, InProcess(job.in_process(self._server.client(), folder / "hosts")))
        return manager

    def _definitions(self) -> list[Json]:
        return [*providers.definitions(), *provisioning.definitions()]

    def _committed(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            self._note_use(event)
            told = self.judge.see(event)
            if told is not None:
                self.herd.ordered(told)
        super()._committed(events)

    def _note_use(self, event: StoreEvent) -> None:
        if event.entry.table == _PLANES and event.type != "DELETED":
            plane = RKE_CONTROL_PLANE.decode(event.entry.value)
            if plane.status.initialization.control_plane_initialized:
                self.downstream(plane.spec.cluster_name).used = True

    async def start(self) -> None:
        sim.clouds["default"] = self.servers
        self.herd.start()
        await super().start()
        await provisioning.make_workspaces(self.client)
        await self._agents.start()
        self._agents.lead()
        await self._register_driver()

    async def stop(self) -> None:
        await self._agents.stop()
        await self.herd.close()
        self.servers.close()
        sim.clouds.pop("default", None)
        await super().stop()
        self._folder.cleanup()

    async def _register_driver(self) -> None:
        spec = {"displayName": "sim", "url": "local://", "active": True}
        driver = {"apiVersion": NODE_DRIVER.api_version, "kind": NODE_DRIVER.name, "metadata": {"name": "sim"}}
        await self.client.create(NODE_DRIVER.target, "", {**driver, "spec": spec})
        async with asyncio.timeout(PATIENCE_SECONDS):
            for kind in (CONFIG, SERVER):
                await self._served(kind)

    async def _served(self, kind: Kind[Any]) -> None:
        while True:
            try:
                await self.client.list(kind.target, NAMESPACE)
                return
            except StatusError:
                await asyncio.sleep(1)

    # -- actions of users

    async def declare(self, name: str, pools: Sequence[Json], version: str = VERSION, **rke: Any) -> None:
        config = {"apiVersion": CONFIG.api_version, "kind": CONFIG.name, "metadata": {"name": name}}
        await self.client.create(CONFIG.target, NAMESPACE, {**config, "bootSeconds": self._boot_seconds})
        spec = {"kubernetesVersion": version, "rkeConfig": {"machinePools": _configured(name, pools), **rke}}
        obj = {"apiVersion": CLUSTER.api_version, "kind": CLUSTER.name, "metadata": {"name": name}, "spec": spec}
        self.judge.epoch += 1
        await self.client.create(CLUSTER.target, NAMESPACE, obj)

    async def edit(self, name: str, spec: Mapping[str, Any]) -> None:
        self.judge.epoch += 1
        changed = dict(spec)
        if pools := changed.get("rkeConfig", {}).get("machinePools"):
            changed["rkeConfig"] = {**changed["rkeConfig"], "machinePools": _configured(name, pools)}
        await self.client.patch(CLUSTER.target, NAMESPACE, name, {"spec": changed})

    async def remove_machine(self, name: str) -> None:
        self.judge.epoch += 1
        await self.client.delete(MACHINE.target, NAMESPACE, name)

    async def delete_declared(self, name: str) -> None:
        self.judge.epoch += 1
        self.downstream(name).ending = True
        await self.client.delete(CLUSTER.target, NAMESPACE, name)
        await self.until(lambda: self.declared(name) is None, f"Cluster {name} is gone")

    # -- faults

    def kill(self, host: ModelHost) -> None:
        self.judge.epoch += 1
        self.herd.kill(host)

    def heal(self, host: ModelHost) -> None:
        """Repair all faults of a host."""
        self.judge.epoch += 1
        host.deaf, host.failing, host.slow_seconds = False, 0, 0.0
        self.herd.revive(host)

    async def crash(self) -> None:
        self.judge.epoch += 1
        await super().crash()

    # -- observation

    def declared(self, name: str) -> Cluster | None:
        return self._declared.get(NAMESPACE, name)

    def plane(self, name: str) -> RKEControlPlane | None:
        return self._planes.get(NAMESPACE, name)

    def downstream(self, name: str) -> Downstream:
        return self.herd.cluster(Key(NAMESPACE, name))

    def hosts(self, name: str) -> list[ModelHost]:
        found = self.herd.clusters.get(Key(NAMESPACE, name))
        return [] if found is None else sorted(found.hosts.values(), key=lambda host: host.name)

    def unlike(self, name: str) -> list[str]:
        """Return the differences from the Cluster's desired state, as its status and the models report them."""
        cluster, plane = self.declared(name), self.plane(name)
        if cluster is None or plane is None or cluster.spec.rke_config is None:
            return ["it is not there"]
        found = []
        if not conditions.is_true(cluster.status.conditions, "Ready"):
            said = conditions.find(cluster.status.conditions, "Ready")
            found.append(f"not Ready: {said.message if said is not None else 'nothing is said'}")
        if cluster.status.observed_generation != cluster.metadata.generation:
            found.append("its last change has not been seen")
        machines = self.machines(name, NAMESPACE)
        for machine in machines:
            if not conditions.is_true(machine.status.conditions, "Available"):
                found.append(f"Machine {machine.metadata.name} is not available")
        for one in cluster.spec.rke_config.machine_pools:
            present = sum(machine.metadata.labels.get(roles.POOL_NAME) == one.name for machine in machines)
            wanted = 1 if one.quantity is None else one.quantity
            if present != wanted:
                found.append(f"{present} machines in pool {one.name}, {wanted} are wanted")
        hosts, etcd = self.hosts(name), self.downstream(name).etcd
        if len(hosts) != len(machines):
            found.append(f"{len(hosts)} hosts for {len(machines)} machines")
        for host in hosts:
            if host.service is None or not host.is_up or host.service.version != cluster.spec.kubernetes_version:
                found.append(f"{host.name} runs {host.service.version if host.service else 'nothing'}")
        members = {host.member for host in hosts if host.service is not None and host.service.etcd}
        if members != {one.name for one in etcd.voters} or len(members) != len(etcd.members):
            found.append(f"etcd has the members {sorted(etcd.members)}")
        return found

    async def ready(self, name: str, seconds: float = 4 * PATIENCE_SECONDS) -> None:
        """Wait until the Cluster is in its desired state."""
        try:
            await self.until(lambda: not self.unlike(name), f"Cluster {name} is as it says", seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{'; '.join(self.unlike(name))}: {error}") from None

    async def broken(self) -> list[str]:
        complaints = list(self.judge.complaints)
        for cluster in self.herd.clusters.values():
            complaints += [f"{cluster.key}: {violation}" for violation in cluster.etcd.violations]
        known = {machine.metadata.name for machine in await self._server_machines()}
        leaked = [server.name for server in await self.servers.servers() if server.name not in known]
        return complaints + [f"nobody knows of the server {name}" for name in leaked]

    async def _server_machines(self) -> list[Any]:
        listing = await self.client.list(SERVER.target, NAMESPACE)
        return [SERVER.decode(item) for item in listing.items]


def simulate_declared(
    scenario: Callable[[DeclaredWorld], Awaitable[T]],
    *,
    seed: int = 0,
    catch_up_seconds: float = 0.0,
    boot_seconds: float = 10.0,
) -> T:
    """Run a scenario in a new world."""

    def make(server: ApiServer) -> DeclaredWorld:
        return DeclaredWorld(server, catch_up_seconds=catch_up_seconds, boot_seconds=boot_seconds)

    return tell(scenario, make, ADMISSION, seed)
