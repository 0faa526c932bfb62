"""The rights of providers in examples/rbac.yaml, beside what their code asks for in a scenario with a real host."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app import controllers, node_server
from remuda.app.node_server import NodeServer
from remuda.app.site import SiteSettings
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT
from remuda.jobs.marks import JobKey
from remuda.jobs.runner import JobRunnerSettings as JobSettings
from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.core import SECRET
from remuda.kube.errors import StatusError
from remuda.kube.objects import Kind
from remuda.providers import setup as providers
from remuda.providers.bootstrap.registration import RegistrationService
from remuda.providers.shared.restriction import ALLOW_ALL_USERS
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER, machine_kind
from remuda.runtime.manager import Manager
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port
from tests.unit.test_permissions import MANAGER, NAMESPACE, PROVIDERS, RIGHTS, RecordingAuthorizer, aggregated, rights

# What no scenario short enough for a test asks for: a Pod that is there before it is made, a Job that is suspended,
# files of nodes that are in a ConfigMap, a server with a credential that somebody is recorded as having chosen.
REVIEW = ("create", "subjectaccessreviews.authorization.k8s.io")
RARE = {("get", "pods"), ("delete", "pods"), ("get", "configmaps"), REVIEW}
PROCESS_MACHINE = machine_kind("process")
EXISTING_MACHINE = machine_kind("existing")
OF_CLUSTER = {"cluster.x-k8s.io/cluster-name": "prairie"}
Json = dict[str, Any]


async def test_provider_rbac_rules_are_sufficient_and_used_except_rare_rules(tmp_path: Path) -> None:
    async with engine(tmp_path) as (server, authorizer), at_work(server, tmp_path) as registration:
        client = server.client()
        await a_cluster(client)
        await a_host_of_ours(client)
        await a_host_of_somebody(client, registration)
        await hosts_that_cannot_be(client)
        await a_driver_goes(client)
        await serve_hosts(server)
    assert authorizer.refused == set()
    granted = set(rights(one for one in yaml.safe_load_all(RIGHTS.read_text()) if one["metadata"]["name"] == PROVIDERS))
    assert {right for right in granted - authorizer.asked if not right[1].startswith("*.")} == RARE


@asynccontextmanager
async def engine(folder: Path) -> AsyncIterator[tuple[ApiServer, RecordingAuthorizer]]:
    server = await ApiServer.start(ServerSettings(data_dir=folder / "data", port=0), admission=controllers.ADMISSION)
    try:
        client = server.client()
        for obj in yaml.safe_load_all(RIGHTS.read_text()):
            target = Target(obj["apiVersion"], f"{obj['kind'].lower()}s")
            await client.create(target, obj["metadata"].get("namespace", ""), obj)
        await aggregated(client)
        yield server, RecordingAuthorizer(server)
    finally:
        await server.stop()


@asynccontextmanager
async def at_work(server: ApiServer, folder: Path) -> AsyncIterator[RegistrationService]:
    mine = server.client(MANAGER)
    await controllers.install(mine, controllers.EVERY)
    manager = Manager(mine, interval=0.02)
    ca_pem = server.pki.ca_certificate_pem
    site = SiteSettings().settled(("127.0.0.1", server.front.port), ca_pem)
    jobs = JobSettings(
        directory=folder / "jobs",
        hosts=folder / "hosts",
        server_url=server.url,
        ca_pem=ca_pem,
        key=JobKey.new(),
    )
    added = controllers.add(manager, controllers.EVERY, providers.ProviderSettings(site=site, jobs=jobs))
    assert added is not None
    assert added.registration is not None
    node_server.mount(server.front, site, added.registration, None)
    await controllers.register_drivers(mine, controllers.EVERY)
    await manager.start()
    try:
        manager.lead()
        yield added.registration
    finally:
        for item in (await server.client().list(MACHINE.target)).items:
            await server.client().delete(MACHINE.target, "default", MACHINE.decode(item).metadata.name)
        await gone(server.client(), PROCESS_MACHINE, "horse")
        await manager.stop()


# The scenario


async def a_cluster(client: Client) -> None:
    await create(client, RKE_CLUSTER, "prairie", {})
    reference = {"apiGroup": RKE_CLUSTER.group, "kind": RKE_CLUSTER.name, "name": "prairie"}
    await create(client, CLUSTER, "prairie", {"infrastructureRef": reference})
    for name in ("process", "existing"):
        await until(client, NODE_DRIVER, name, lambda driver: condition(driver, "Active") == "True", namespace="")
    # Webhooks know the manager by its name. In process, where it is an administrator, it is a user like others here.
    await client.patch(NODE_DRIVER.target, "", "process", {"metadata": {"annotations": {ALLOW_ALL_USERS: "true"}}})


async def a_host_of_ours(client: Client) -> None:
    await a_machine(client, PROCESS_MACHINE, "horse", {})
    await until(client, MACHINE, "horse", lambda obj: obj["spec"].get("providerID"))
    await client.delete(MACHINE.target, "default", "horse")
    await gone(client, MACHINE, "horse")


async def a_host_of_somebody(client: Client, registration: RegistrationService) -> None:
    secret = await until(client, SECRET, "prairie-registration", lambda _: True)
    token = base64.b64decode(secret["data"]["token"]).decode()
    info = await registration.connect(token, {"x-cattle-id": "a" * 63, "x-cattle-role-worker": "true"})
    name = info.secret_name.removesuffix("-machine-plan")
    await until(client, RKE_BOOTSTRAP, name, lambda obj: condition(obj, "AgentConnected") == "True")
    await client.delete(MACHINE.target, "default", name)
    await gone(client, MACHINE, name)


async def hosts_that_cannot_be(client: Client) -> None:
    """Two of one pool, with options that no server can be made with."""
    template = machine_of("mule", EXISTING_MACHINE)
    pool = {"clusterName": "prairie", "replicas": 0, "selector": {"matchLabels": {"a": "b"}}}
    labels = {"metadata": {"labels": {"a": "b", **OF_CLUSTER}}}
    await create(client, MACHINE_DEPLOYMENT, "mules", {**pool, "template": {**labels, "spec": template}})
    for name in ("mule", "hinny"):
        await a_machine(client, EXISTING_MACHINE, name, {}, {"cluster.x-k8s.io/deployment-name": "mules"})
        await until(client, EXISTING_MACHINE, name, lambda obj: obj.get("status", {}).get("failureMessage"))
    for name in ("mule", "hinny"):
        await client.delete(MACHINE.target, "default", name)
        await gone(client, MACHINE, name)


async def a_driver_goes(client: Client) -> None:
    await client.patch(NODE_DRIVER.target, "", "existing", {"spec": {"active": False}})
    await until(client, NODE_DRIVER, "existing", lambda driver: condition(driver, "Active") == "False", namespace="")


async def serve_hosts(server: ApiServer) -> None:
    """By a name, and by another: another certificate."""
    access = kubeconfig.load(server.kubeconfig)
    for name in ("one", "two"):
        site = SiteSettings(server_url=f"https://{name}.example")
        await NodeServer(server.client(MANAGER), access, ("127.0.0.1", free_port()), site, NAMESPACE).prepare()


async def a_machine(
    client: Client, kind: Kind[Any], name: str, spec: Json, labels: dict[str, str] | None = None
) -> None:
    await create(client, kind, name, spec)
    await create(client, RKE_BOOTSTRAP, name, {"clusterName": "prairie"})
    await create(client, MACHINE, name, machine_of(name, kind), labels)


def machine_of(name: str, kind: Kind[Any]) -> Json:
    return {
        "clusterName": "prairie",
        "bootstrap": {"configRef": {"apiGroup": RKE_BOOTSTRAP.group, "kind": RKE_BOOTSTRAP.name, "name": name}},
        "infrastructureRef": {"apiGroup": kind.group, "kind": kind.name, "name": name},
    }


async def create(client: Client, kind: Kind[Any], name: str, spec: Json, labels: dict[str, str] | None = None) -> None:
    metadata = {"name": name, "labels": {**OF_CLUSTER, **(labels or {})}}
    obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
    await client.create(kind.target, "default", obj)


async def until(
    client: Client, kind: Kind[Any], name: str, holds: Callable[[Json], object], *, namespace: str = "default"
) -> Json:
    found: Json = {}
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                watch = client.watch(kind.target, namespace, field_selector=f"metadata.name={name}")
                async for change in watch:
                    found = msgspec.json.decode(change.value)
                    if change.type != "BOOKMARK" and holds(found):
                        return found
    except TimeoutError:
        raise AssertionError(f"not within {LIMIT_SECONDS:g} s: {found}") from None


async def gone(client: Client, kind: Kind[Any], name: str) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            try:
                await client.get(kind.target, "default", name)
            except StatusError:
                return
            await asyncio.sleep(0.05)


def condition(obj: Json, type: str) -> str:
    found = [one for one in obj.get("status", {}).get("conditions", ()) if one["type"] == type]
    return str(found[0]["status"]) if found else ""
