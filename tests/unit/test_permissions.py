"""examples/rbac.yaml grants `remuda manager` what it does, and nothing that it never does.

A manager with these rights alone lives through everything core can be asked for; the engine notes each right it is
asked about."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from remuda.apiserver.auth.user import Attributes, User
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app import controllers, webhooks
from remuda.app.manager import LEASE_NAME, NAMESPACE, _make_namespace
from remuda.capi import admission, inventory, names
from remuda.capi.remote import SECRET
from remuda.capi.setup import CONTROLLERS, add_controllers
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, Machine
from remuda.kube.client import Client, Target
from remuda.kube.definitions import DEFINITION
from remuda.kube.objects import Key, Kind
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.kinds import GROUP as PROVIDER
from remuda.lab.simulator.kinds import NEW, definitions
from remuda.lab.simulator.setup import add_providers
from remuda.lab.simulator.world import World
from remuda.runtime.definitions import install
from remuda.runtime.election import Election
from remuda.runtime.events import EventObject
from remuda.runtime.manager import Manager
from remuda.runtime.webhooks import Location, lookup_in, unregister
from remuda.runtime.webhooks.service import WebhookService
from tests.controllers.certificates import authority
from tests.unit.test_examples import ROOT, apply, manifest

Json = dict[str, Any]
Right = tuple[str, str]  # verb, and resource[/subresource].group

RIGHTS = ROOT / "examples" / "rbac.yaml"
PROVIDERS = "remuda-manager-providers"  # their story is told in test_permissions_providers
PROVISIONING = "remuda-manager-provisioning"  # … in test_permissions_provisioning
ACCESS = "remuda-manager-access"  # … in test_permissions_access
MANAGER = User(f"system:serviceaccount:{NAMESPACE}:remuda-manager", groups=("system:authenticated",))
EXAMPLE = "savanna"  # name of the Cluster in examples/cluster.yaml
CLUSTER_REFERENCE = EventObject(CLUSTER.api_version, CLUSTER.name, "default", EXAMPLE)
SECRETS = Target("v1", "secrets")
CLUSTER_ROLES = Target("rbac.authorization.k8s.io/v1", "clusterroles")


class RecordingAuthorizer:
    """An authoriser that remembers what the manager asked for, and what it was refused."""

    def __init__(self, server: ApiServer) -> None:
        self._authorizer = server.registry._authorizer
        self.asked: set[Right] = set()
        self.refused: set[Right] = set()
        server.registry._authorizer = self  # type: ignore[assignment]

    def authorize(self, user: User, attributes: Attributes) -> Any:
        decision = self._authorizer.authorize(user, attributes)
        if user == MANAGER:
            resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
            right = (attributes.verb, f"{resource}.{attributes.group}".rstrip("."))
            (self.asked if decision.allowed else self.refused).add(right)
        return decision

    def __getattr__(self, name: str) -> Any:
        return getattr(self._authorizer, name)


class Limited(World):
    """Core has the rights of a manager; the provider, and whoever tells the story, have all of them."""

    def _new_manager(self) -> Manager:
        self.provider = Manager(self._server.client(), name="provider")
        add_providers(self.provider, self.cloud, self.workloads)
        manager = Manager(self._server.client(MANAGER), name="remuda")
        add_controllers(manager, dial=self.workloads.dial)
        return manager

    async def start(self) -> None:
        await install(self.client, definitions())
        await self._view.start()
        await self.manager.start()
        self.manager.lead()
        await self.provider.start()
        self.provider.lead()

    async def stop(self) -> None:
        await self.provider.stop()
        await super().stop()


def test_manager_rbac_rules_are_sufficient_and_all_used() -> None:
    async def scenario(folder: Path) -> RecordingAuthorizer:
        async with engine(folder) as (server, authorizer):
            await installed(server)
            world = Limited(server)
            await world.start()
            await a_life(world)
            await without_a_control_plane(world)
            await world.stop()
            await lead_and_serve(server.client(MANAGER))
            return authorizer

    with tempfile.TemporaryDirectory() as folder:
        noted = virtual.run(scenario(Path(folder)))
    assert noted.refused == set()
    told_elsewhere = (PROVIDERS, PROVISIONING, ACCESS)
    objects = [one for one in yaml.safe_load_all(RIGHTS.read_text()) if one["metadata"]["name"] not in told_elsewhere]
    granted = set(rights(objects))
    kinds = {f"{kind.plural}.{PROVIDER}" for kind in NEW.kinds}
    of_providers = {(verb, what) for verb, what in noted.asked if what in kinds}
    assert noted.asked - of_providers == {right for right in granted if not right[1].endswith(PROVIDER)}
    assert {verb for verb, _ in of_providers} == {verb for verb, what in granted if what.endswith(PROVIDER)}


@asynccontextmanager
async def engine(folder: Path) -> AsyncIterator[tuple[ApiServer, RecordingAuthorizer]]:
    settings = ServerSettings(data_dir=folder, port=0, volatile=True, webhook_records=True)
    server = await ApiServer.start(settings, admission=admission.FUNCTIONS)
    try:
        client = server.client()
        for obj in yaml.safe_load_all(RIGHTS.read_text()):
            target = Target(obj["apiVersion"], f"{obj['kind'].lower()}s")
            await client.create(target, obj["metadata"].get("namespace", ""), obj)
        await aggregated(client)
        yield server, RecordingAuthorizer(server)
    finally:
        await server.stop()


async def aggregated(client: Client) -> None:
    """Until the manager's role has the rules of all others that are labelled for it."""
    watch = client.watch(CLUSTER_ROLES, field_selector="metadata.name=remuda-manager")
    async with aclosing(watch) as changes:
        async for change in changes:
            if PROVIDER.encode() in change.value and b"machinedrainrules" in change.value:
                return


async def installed(server: ApiServer) -> None:
    """From nothing, and again over what an older version left."""
    mine, anybody = server.client(MANAGER), server.client()
    await controllers.install(mine, CONTROLLERS)
    older = {"spec": {"names": {"categories": []}}}
    await anybody.patch(DEFINITION.target, "", f"{CLUSTER.plural}.{CLUSTER.group}", older)
    await anybody.patch(inventory.PROVIDER.target, NAMESPACE, "cluster-api", {"version": "v1.0.0"})
    await controllers.install(mine, CONTROLLERS)
    await _make_namespace(mine, "elsewhere")


async def a_life(world: World) -> None:
    """Made, changed in place, healed in both ways, rolled, deleted."""
    for obj in manifest():
        await apply(world, obj)
    await world.available(EXAMPLE)
    await edit(world, MACHINE_DEPLOYMENT, f"{EXAMPLE}-workers", {"template": {"metadata": {"labels": {"a": "b"}}}})
    await world.until(lambda: all(one.metadata.labels.get("a") == "b" for one in workers(world)), "in place")
    await edit(world, MACHINE_DEPLOYMENT, f"{EXAMPLE}-workers", {"template": {"metadata": {"labels": {"a": None}}}})
    await world.until(lambda: not any("a" in one.metadata.labels for one in workers(world)), "taken away again")
    await remediated_by_its_owner(world)
    await remediated_by_somebody_else(world)
    await edit(world, NEW.control_plane, EXAMPLE, {"version": "v1.36.0"})
    await edit(world, MACHINE_DEPLOYMENT, f"{EXAMPLE}-workers", {"template": {"spec": {"version": "v1.36.0"}}})
    await world.until(lambda: {one.spec.version for one in world.machines(EXAMPLE)} == {"v1.36.0"}, "rolled")
    await world.delete_cluster(EXAMPLE)


async def remediated_by_its_owner(world: World) -> None:
    await check(world, {})
    name = workers(world)[0].metadata.name
    await annotate(world, name, "")
    await world.until(lambda: world.machine(name) is None, "replaced")
    await world.available(EXAMPLE)
    await world.client.delete(MACHINE_HEALTH_CHECK.target, "default", "workers")


async def remediated_by_somebody_else(world: World) -> None:
    template = {"template": {"spec": {"script": {"never": True}}}}
    await create(world, NEW.remediation_template, "restart", template)
    kind = NEW.remediation_template
    await check(world, {"templateRef": {"apiVersion": kind.api_version, "kind": kind.name, "name": "restart"}})
    name = workers(world)[0].metadata.name
    requests = world._view.of(NEW.remediation)
    await annotate(world, name, "")
    await world.until(lambda: requests.get("default", name) is not None, "asked for")
    await annotate(world, name, None)
    await world.until(lambda: requests.get("default", name) is None, "withdrawn")


async def without_a_control_plane(world: World) -> None:
    """Core makes the kubeconfig."""
    endpoint = {"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}}
    data = {key: base64.b64encode(value).decode() for key, value in authority().items()}
    await world.client.create(SECRETS, "default", {"metadata": {"name": "plain-ca"}, "data": data})
    await create(world, NEW.cluster, "plain", {})
    reference = {"apiGroup": PROVIDER, "kind": NEW.cluster.name, "name": "plain"}
    await create(world, CLUSTER, "plain", {"infrastructureRef": reference, **endpoint})
    secrets = world._view.of(SECRET)
    await world.until(lambda: secrets.get("default", "plain-kubeconfig") is not None, "a kubeconfig")
    await world.delete_cluster("plain")


async def lead_and_serve(client: Client) -> None:
    """What every replica does beside its controllers."""
    election = Election(client, Key(NAMESPACE, LEASE_NAME))
    await election.campaign()
    await election.resign()
    manager = Manager(client)
    for _ in range(2):
        manager.events.normal(CLUSTER_REFERENCE, "Said", "twice")
        manager.events.start()
        await manager.events.close()
    for url in ("https://127.0.0.1:9443", "https://127.0.0.2:9443"):  # another name, another certificate
        service = WebhookService(
            client,
            controllers.webhooks(CONTROLLERS),
            lookup_in(manager.caches),
            location=Location.at(url),
            secret=Key(NAMESPACE, webhooks.SECRET_NAME),
            name=webhooks.NAME,
        )
        await service.start("127.0.0.1", 0)
        await service.stop()
    await webhooks.require(client)
    await unregister(client, webhooks.NAME)


# What a story says


def workers(world: World) -> list[Machine]:
    return [one for one in world.machines(EXAMPLE) if not one.is_control_plane]


async def create(world: World, kind: Kind[Any], name: str, spec: Json) -> None:
    obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
    await world.client.create(kind.target, "default", obj)


async def edit(world: World, kind: Kind[Any], name: str, spec: Json) -> None:
    await world.client.patch(kind.target, "default", name, {"spec": spec})


async def annotate(world: World, machine: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {names.REMEDIATE_MACHINE: value}}}
    await world.client.patch(MACHINE.target, "default", machine, patch)


async def check(world: World, remediation: Json) -> None:
    selector = {"matchLabels": {names.DEPLOYMENT_NAME: f"{EXAMPLE}-workers"}}
    spec = {"clusterName": EXAMPLE, "selector": selector, "checks": {"nodeStartupTimeoutSeconds": 600}}
    await create(world, MACHINE_HEALTH_CHECK, "workers", spec | ({"remediation": remediation} if remediation else {}))


def rights(objects: Iterable[Json]) -> Iterator[Right]:
    """Everything roles grant, one by one."""
    for obj in objects:
        for rule in obj.get("rules") or ():
            for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                yield verb, f"{resource}.{group}".rstrip(".")
