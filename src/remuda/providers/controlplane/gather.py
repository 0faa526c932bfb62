"""Gather the planner's input: every fact that a decision depends on, read once, before the planner runs.

Most facts come from caches. Plans that were not used lately and the contents of Secrets are read from the server. Nodes
come from the cache that the core keeps of every connected cluster. A missing object becomes a `Wait`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from remuda.capi import health
from remuda.capi import names as capi_names
from remuda.capi.cluster_index import members
from remuda.capi.machine.workload import Node
from remuda.capi.pause import paused
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, Cluster, Endpoint, Machine
from remuda.kube import clock, conditions
from remuda.kube.core import Secret
from remuda.kube.objects import Key
from remuda.kube.wait import Wait
from remuda.providers.controlplane import authorities, hosts, identity, installation, references, state
from remuda.providers.controlplane.authorities import Authorities
from remuda.providers.controlplane.plan_secrets import Plans
from remuda.providers.controlplane.planner.observation import (
    ClusterFacts,
    Observation,
    ObservedHost,
    Orphan,
    Pool,
    Tokens,
    Tunnel,
)
from remuda.providers.controlplane.planner.quorum import QUORUM_LOST
from remuda.providers.controlplane.referenced_objects import ReferencedObjects
from remuda.providers.shared import names, secrets
from remuda.providers.shared.distros import Distro, Version
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.plan_access import is_of
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP, RKEBootstrap
from remuda.providers.shared.types.controlplane import AVAILABLE, INIT_NODE_MACHINE_ID, Installer, RKEControlPlane
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER, RKECluster, standing_endpoint
from remuda.runtime.manager import Manager
from remuda.runtime.remote import PROVIDER_ID, Connection, RemoteClusters

Silence = Callable[[str, str], float | None]
"""Function from a cluster's id and a Machine's name to the time since which its host has been silent. None: the host is
connected, or nothing is known of it."""

_NO_TOKENS = Tokens("", "")


class Gathered(msgspec.Struct, kw_only=True):
    """Objects that were read, for the code that acts on the decision."""

    observed: Observation
    authorities: Authorities
    machines: dict[str, Machine]  # by name
    bootstraps: dict[str, RKEBootstrap]  # by name of their Machine
    secrets: dict[str, Secret]  # the same: plan Secrets as wholes
    connection: Connection
    reported_endpoint: Endpoint | None = None  # of the infrastructure, even if it is only one of the servers


class Gatherer:
    def __init__(
        self, manager: Manager, remote: RemoteClusters, tunnels_at: Site | None = None, silence: Silence | None = None
    ) -> None:
        self._client = manager.client
        self._tunnels_at = tunnels_at
        self._silence = silence
        self._caches = manager.caches
        self._remote = remote
        self.named = ReferencedObjects(manager)
        self.plans = Plans(manager.client)
        self.machines = manager.caches.of(MACHINE)
        self.clusters = manager.caches.of(CLUSTER)
        self.bootstraps = manager.caches.of(RKE_BOOTSTRAP)
        self.infrastructure = manager.caches.of(RKE_CLUSTER)
        self.plan_secrets = secrets.informer(manager.caches)

    def machines_of(self, cluster: Key) -> list[Machine]:
        """Return the cluster's Machines whose plans this controller writes, by name."""
        return [machine for machine in members(self._caches, MACHINE, cluster) if hosts.is_ours(machine)]

    async def gather(
        self, plane: RKEControlPlane, cluster: Cluster, distro: Distro, version: Version, installer: Installer
    ) -> Gathered:
        machines = self.machines_of(cluster.key)
        bootstraps = {one.metadata.name: known for one in machines if (known := self._bootstrap(one)) is not None}
        held = {name: plan for name, one in bootstraps.items() if (plan := await self._plan(one)) is not None}
        connection = self._remote.look(cluster.key)
        problems: list[Wait] = []
        gathered = [
            self._with_silence(plane, self._host(one, bootstraps, held, self._node(one, connection), distro, problems))
            for one in machines
        ]
        delivered = any(host.planned for host in gathered)
        servers = [held[host.name] for host in gathered if host.roles.server and host.name in held]
        trusted = await authorities.authorities(self._client, self.named, plane, delivered=delivered, plans=servers)
        tokens = await state.tokens(self._client, self.named, plane, delivered=delivered)
        if isinstance(tokens, Wait):
            problems.append(tokens)
            tokens = _NO_TOKENS
        found = await references.resolve(self.named, plane)
        infrastructure = self._infrastructure(cluster)
        pause = paused(cluster, plane.metadata)
        observed = Observation(
            cluster=ClusterFacts(
                name=cluster.metadata.name,
                namespace=cluster.metadata.namespace,
                uid=cluster.metadata.uid,
                created=_created(plane),
                spec=plane.spec,
                distro=distro,
                version=version,
                renderer=installation.renderer(plane).version,
                installer=installer,
                tokens=tokens,
                authorities=trusted.files,
                config_generation=plane.status.config_generation,
                endpoint=_stable_endpoint(plane, cluster, infrastructure),
                registries=found.registries,
                files=found.files,
                config_files=found.config_files,
                s3=found.s3,
                tunnel=_tunnel(plane, self._tunnels_at),
                init_machine_id=plane.metadata.labels.get(INIT_NODE_MACHINE_ID, ""),
            ),
            hosts=gathered,
            pools=self._pools(cluster.key),
            now=clock.time(),
            initialized=bool(plane.status.initialization.control_plane_initialized),
            infrastructure_ready=cluster.status.initialization.infrastructure_provisioned,
            paused=pause.message if pause.status == conditions.TRUE else "",
            deleting=plane.metadata.deleting or cluster.metadata.deleting,
            reachable=connection.connected,
            unreachable="" if connection.connected else connection.error,
            unanswered_since=_unanswered_since(connection),
            lost_before=_lost_before(plane),
            orphans=self._orphans(cluster.key, connection),
            problems=(*problems, *trusted.problems, *found.problems),
        )
        return Gathered(
            observed=observed,
            authorities=trusted,
            machines={one.metadata.name: one for one in machines},
            bootstraps=bootstraps,
            secrets=held,
            connection=connection,
            reported_endpoint=infrastructure.spec.control_plane_endpoint if infrastructure is not None else None,
        )

    def _host(
        self,
        machine: Machine,
        bootstraps: dict[str, RKEBootstrap],
        plans: dict[str, Secret],
        node: Node | None,
        distro: Distro,
        problems: list[Wait],
    ) -> ObservedHost:
        name = machine.metadata.name
        try:
            return hosts.host(machine, bootstraps.get(name), plans.get(name), node, distro)
        except hosts.BadNote as error:
            problems.append(Wait(reason="BadAnnotation", on=f"Machine {machine.key}", missing=str(error)))
            return hosts.host(machine, bootstraps.get(name), plans.get(name), node, distro, notes=False)

    def _with_silence(self, plane: RKEControlPlane, host: ObservedHost) -> ObservedHost:
        since = self._silence(identity.id_of(plane), host.name) if self._silence is not None else None
        return host if since is None else msgspec.structs.replace(host, silent_since=since)

    def _bootstrap(self, machine: Machine) -> RKEBootstrap | None:
        reference = machine.spec.bootstrap.config_ref
        assert reference is not None
        found = self.bootstraps.get(machine.metadata.namespace, reference.name)
        return found if found is not None and is_of(found.metadata, machine.metadata.uid) else None

    async def _plan(self, bootstrap: RKEBootstrap) -> Secret | None:
        name = names.plan_secret(bootstrap.metadata.name)
        found = self.plan_secrets.get(bootstrap.metadata.namespace, name)
        # A plan holds keys of the cluster: it must not be delivered into a Secret that another client has created.
        if found is None or found.type != names.PLAN_TYPE or not is_of(found.metadata, bootstrap.metadata.uid):
            return None
        return await self.plans.whole(found)

    def _node(self, machine: Machine, connection: Connection) -> Node | None:
        """Return the Node with the Machine's provider ID, else the Node of its name if that has no provider ID."""
        nodes = connection.nodes
        if nodes is None:
            return None
        same = nodes.select(PROVIDER_ID, machine.spec.provider_id) if machine.spec.provider_id else []
        if same:
            found: Node = same[0]
            return found
        named: Node | None = nodes.get("", hosts.node_name(machine))
        return named if named is not None and not named.spec.provider_id else None

    def _orphans(self, cluster: Key, connection: Connection) -> list[Orphan]:
        if connection.nodes is None or not connection.connected:
            return []
        return hosts.orphans(connection.nodes.all(), members(self._caches, MACHINE, cluster))

    def _pools(self, cluster: Key) -> list[Pool]:
        return [
            hosts.pool(one)
            for one in members(self._caches, MACHINE_DEPLOYMENT, cluster)
            if not one.metadata.deleting and _is_of_ours(one.spec.template.spec.bootstrap.config_ref)
        ]

    def _infrastructure(self, cluster: Cluster) -> RKECluster | None:
        reference = cluster.spec.infrastructure_ref
        if reference is None or (reference.api_group, reference.kind) != (RKE_CLUSTER.group, RKE_CLUSTER.name):
            return None
        return self.infrastructure.get(cluster.metadata.namespace, reference.name)


def _unanswered_since(connection: Connection) -> float | None:
    if connection.connected and not connection.failures:
        return None
    since = health.heard(connection)
    return since if since != float("inf") else None


def _lost_before(plane: RKEControlPlane) -> str:
    found = conditions.find(plane.status.conditions, AVAILABLE)
    return found.message if found is not None and found.reason == QUORUM_LOST else ""


def _is_of_ours(reference: object) -> bool:
    group = getattr(reference, "api_group", "")
    return group == RKE_BOOTSTRAP.group and str(getattr(reference, "kind", "")).startswith(RKE_BOOTSTRAP.name)


def _created(plane: RKEControlPlane) -> float:
    made = plane.metadata.creation_timestamp
    return clock.parse(made) if made else 0.0


def _tunnel(plane: RKEControlPlane, site: Site | None) -> Tunnel | None:
    id = identity.id_of(plane)
    if site is None or not id:
        return None
    return Tunnel(cluster=id, url=site.tunnel_url, manager=site.server_url, authority=site.ca_pem)


def _stable_endpoint(plane: RKEControlPlane, cluster: Cluster, infrastructure: RKECluster | None) -> Endpoint | None:
    """Return the stable endpoint in front of the servers. It is in their certificates, so the address of one server
    does not qualify."""
    own = plane.spec.control_plane_endpoint
    if own is not None and own.valid:
        return own
    if infrastructure is not None:
        return standing_endpoint(infrastructure)
    return cluster.spec.control_plane_endpoint if cluster.spec.control_plane_endpoint.valid else None


def owned_secret_places(plane: RKEControlPlane) -> Sequence[str]:
    """Return the Secrets that a control plane owns without naming them, in the format of `references.place`."""
    cluster, namespace = plane.spec.cluster_name, plane.metadata.namespace
    kubeconfigs = (capi_names.kubeconfig_secret(cluster), names.admin_kubeconfig_secret(cluster))
    own = [*authorities.secret_names(cluster), state.secret_name(cluster), *kubeconfigs]
    return [references.place("Secret", Key(namespace, name)) for name in own]
