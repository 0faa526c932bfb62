"""NodeDrivers: kinds that come and go while everything runs, on either engine."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from remuda.kube.definitions import DEFINITION
from remuda.kube.errors import StatusError
from remuda.providers.bootstrap import definitions as bootstrap_definitions
from remuda.providers.machine import setup
from remuda.providers.machine.catalogue import NotAvailable
from remuda.providers.machine.options import Flag, of_flags
from remuda.providers.machine.scope import FoundDriver
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.machine import (
    NODE_DRIVER,
    NodeDriver,
    capital,
    config_kind,
    machine_kind,
    template_kind,
)
from remuda.runtime.manager import Manager
from tests.controllers.engine import Engine, Json, condition, decode, eventually, is_true

SETTINGS = MachineSettings(in_use_seconds=0.1)


class Workshop:
    """A driver whose options the test decides on."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self.engine = engine
        self.namespace = namespace
        self.driver = f"t{secrets.token_hex(3)}"
        self.flags = [Flag(name=f"{self.driver}-size", type="string", default="small", doc="How large.")]
        self.error: NotAvailable | None = None

    async def find(self, driver: NodeDriver, settings: MachineSettings) -> FoundDriver:
        if driver.metadata.name != self.driver:  # other tests leave theirs on the server
            raise NotAvailable("Foreign", "not a driver of this test")
        if self.error is not None:
            raise self.error
        return FoundDriver(name=self.driver, model=of_flags(self.driver, self.flags))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Manager]:
        def add(manager: Manager) -> None:
            setup.add(manager, SETTINGS, self.find)

        async with self.engine.running(self.namespace, add) as manager:
            self.manager = manager
            yield manager

    async def register(self, **spec: object) -> Json:
        obj = {
            "apiVersion": NODE_DRIVER.api_version,
            "kind": "NodeDriver",
            "metadata": {"name": self.driver},
            "spec": {"active": True, **spec},
        }
        return await self.engine.create(NODE_DRIVER.target, "", obj)

    async def active(self) -> Json:
        return await self.until(lambda obj: is_true(obj, "Active") and condition(obj, "Active")["reason"] == "Active")

    async def until(self, holds: object) -> Json:
        return await self.engine.until(NODE_DRIVER.target, "", self.driver, holds)  # type: ignore[arg-type]

    async def switch(self, **spec: object) -> None:
        await self.engine.patch(NODE_DRIVER.target, "", self.driver, {"spec": spec})

    async def definition(self, kind: str) -> Json | None:
        plural, group = kind.lower() + "s", "rke-machine.cattle.io"
        if kind.endswith("Config"):
            group = "rke-machine-config.cattle.io"
        return await self.engine.get(DEFINITION.target, "", f"{plural}.{group}")

    async def config(self, name: str = "x", **options: object) -> Json:
        kind = config_kind(self.driver)
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **options}
        return await self.engine.create(kind.target, self.namespace, obj)

    async def machine(self, name: str = "m") -> Json:
        kind = machine_kind(self.driver)
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": {}}
        return await self.engine.create(kind.target, self.namespace, obj)


@pytest_asyncio.fixture(loop_scope="session")
async def shop(engine: Engine) -> AsyncIterator[Workshop]:
    await engine.install([*setup.definitions(), *bootstrap_definitions.definitions()])
    shop = Workshop(engine, await engine.namespace())
    yield shop
    found = await engine.get(NODE_DRIVER.target, "", shop.driver)
    if found is not None:  # discovery of others shall not see it for ever
        await engine.patch(NODE_DRIVER.target, "", shop.driver, {"metadata": {"finalizers": None}})
        if not found["metadata"].get("deletionTimestamp"):
            await engine.delete(NODE_DRIVER.target, "", shop.driver)


async def test_an_active_driver_has_its_kinds_served_at_once(shop: Workshop) -> None:
    async with shop.running() as manager:
        await shop.register()
        found = await shop.active()
        assert is_true(found, "Downloaded")
        assert is_true(found, "Installed")

        listed = decode(await shop.engine.client.raw_get("/apis/rke-machine.cattle.io/v1"))
        kinds = {resource["kind"] for resource in listed["resources"]}
        assert {f"{capital(shop.driver)}Machine", f"{capital(shop.driver)}MachineTemplate"} <= kinds
        configs = decode(await shop.engine.client.raw_get("/apis/rke-machine-config.cattle.io/v1"))
        assert f"{capital(shop.driver)}Config" in {resource["kind"] for resource in configs["resources"]}

        assert (await shop.config())["size"] == "small", "defaults are in the Config, at its root"
        await shop.machine()
        kind = machine_kind(shop.driver)
        waiting = await shop.engine.until(
            kind.target, shop.namespace, "m", lambda obj: condition(obj, "Ready").get("reason") == "WaitingForOwner"
        )
        assert "size" not in waiting["spec"]
        assert kind.name.lower() in manager.controllers


async def test_driver_definitions_have_cluster_api_labels(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
        for suffix in ("Machine", "MachineTemplate", "Config"):
            found = await shop.definition(f"{capital(shop.driver)}{suffix}")
            assert found is not None
            labels = found["metadata"]["labels"]
            assert labels["cluster.x-k8s.io/v1beta1"] == "v1"
            assert labels["cluster.x-k8s.io/v1beta2"] == "v1"
            assert "clusterctl.cluster.x-k8s.io" in labels


async def test_changed_driver_updates_kinds_and_keeps_machines(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
        machine = await shop.machine()
        template = await _template(shop)
        shop.flags.append(Flag(name=f"{shop.driver}-zone", type="string", default="a", doc="Where."))
        await shop.switch(description="now with zones")
        await shop.until(lambda obj: condition(obj, "Active").get("observedGeneration") == 2)
        assert (await shop.config("y"))["zone"] == "a"

        kind = machine_kind(shop.driver)
        now = await shop.engine.get(kind.target, shop.namespace, "m")
        assert now is not None
        assert now["metadata"]["uid"] == machine["metadata"]["uid"]
        assert now["spec"] == machine["spec"]
        kept = await shop.engine.get(template_kind(shop.driver).target, shop.namespace, "t")
        assert kept == template


async def _template(shop: Workshop) -> Json:
    kind = template_kind(shop.driver)
    obj = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "t"},
        "spec": {"clusterName": "c", "template": {"spec": {"size": "large", "common": {"labels": {"a": "b"}}}}},
    }
    return await shop.engine.create(kind.target, shop.namespace, obj)


async def test_deletion_of_driver_in_use_waits_and_names_users(shop: Workshop) -> None:
    async with shop.running() as manager:
        await shop.register()
        await shop.active()
        await shop.config("mine")
        for number in range(7):
            await shop.machine(f"m{number}")
        await shop.engine.delete(NODE_DRIVER.target, "", shop.driver)
        found = await shop.until(lambda obj: condition(obj, "Active").get("reason") == "InUse")
        message = condition(found, "Active")["message"]
        assert f"{capital(shop.driver)}Machine {shop.namespace}/m0" in message
        assert "and more" in message
        assert is_true(found, "Active"), "its machines are still looked after"

        for number in range(7):
            await shop.engine.delete(machine_kind(shop.driver).target, shop.namespace, f"m{number}")
        found = await shop.until(lambda obj: "Config" in condition(obj, "Active")["message"])
        await shop.engine.delete(config_kind(shop.driver).target, shop.namespace, "mine")
        await shop.engine.gone(NODE_DRIVER.target, "", shop.driver)
        for suffix in ("Machine", "MachineTemplate", "Config"):
            await shop.engine.gone(DEFINITION.target, "", _name(shop, suffix))
        assert f"{shop.driver}machine" not in manager.controllers
        assert machine_kind(shop.driver).target not in manager.caches.errors


async def test_deleting_driver_still_reconciles_machines_after_restart(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
        await shop.machine()
        await shop.engine.delete(NODE_DRIVER.target, "", shop.driver)
        await shop.until(lambda obj: condition(obj, "Active").get("reason") == "InUse")
    async with shop.running():
        await shop.machine("late")
        kind = machine_kind(shop.driver)
        await shop.engine.until(kind.target, shop.namespace, "late", lambda obj: condition(obj, "Ready"))


def _name(shop: Workshop, suffix: str) -> str:
    group = "rke-machine-config.cattle.io" if suffix == "Config" else "rke-machine.cattle.io"
    return f"{shop.driver}{suffix.lower()}s.{group}"


async def test_a_driver_can_be_switched_off_and_on_again(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
        await shop.switch(active=False)
        await shop.until(lambda obj: condition(obj, "Active").get("reason") == "Inactive")
        await shop.engine.gone(DEFINITION.target, "", _name(shop, "Machine"))

        await shop.switch(active=True)
        await shop.active()
        await shop.machine()
        kind = machine_kind(shop.driver)
        await shop.engine.until(kind.target, shop.namespace, "m", lambda obj: condition(obj, "Ready"))


async def test_foreign_definitions_are_not_overwritten_or_deleted(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
        await shop.switch(active=False)
        await shop.until(lambda obj: condition(obj, "Active").get("reason") == "Inactive")
        name = _name(shop, "Machine")
        await shop.engine.gone(DEFINITION.target, "", name)
        foreign = {
            "apiVersion": DEFINITION.api_version,
            "kind": DEFINITION.name,
            "metadata": {"name": name},
            "spec": {
                "group": "rke-machine.cattle.io",
                "scope": "Namespaced",
                "names": {"kind": f"{capital(shop.driver)}Machine", "plural": name.partition(".")[0]},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ],
            },
        }
        await shop.engine.create(DEFINITION.target, "", foreign)
        try:
            await shop.switch(active=True)
            found = await shop.until(lambda obj: condition(obj, "Installed").get("reason") == "ForeignDefinitions")
            assert name in condition(found, "Active")["message"]
            await shop.engine.delete(NODE_DRIVER.target, "", shop.driver)
            await shop.engine.gone(NODE_DRIVER.target, "", shop.driver)
            assert await shop.engine.get(DEFINITION.target, "", name) is not None
        finally:
            await shop.engine.delete(DEFINITION.target, "", name)


async def test_unavailable_driver_is_reported_and_serves_no_kinds(shop: Workshop) -> None:
    shop.error = NotAvailable("NotDownloaded", "https://example.com/x answers 404")
    async with shop.running():
        await shop.register()
        found = await shop.until(lambda obj: condition(obj, "Downloaded").get("status") == "False")
        assert condition(found, "Downloaded")["message"] == "https://example.com/x answers 404"
        assert condition(found, "Active")["status"] == "False"
        assert await shop.definition(f"{capital(shop.driver)}Machine") is None

        shop.error = None
        await shop.switch(description="try again")
        await shop.active()


async def test_modified_definition_is_restored(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
        name = _name(shop, "Config")
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        found = await shop.engine.get(DEFINITION.target, "", name)
        assert found is not None
        version = {**found["spec"]["versions"][0], "schema": {"openAPIV3Schema": schema}}
        await shop.engine.patch(DEFINITION.target, "", name, {"spec": {"versions": [version]}})
        await shop.engine.until(
            DEFINITION.target,
            "",
            name,
            lambda obj: "size" in obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"].get("properties", {}),
        )


async def test_an_idle_driver_writes_nothing(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
    async with shop.running() as manager:

        async def looked_after() -> bool:
            return f"{shop.driver}machine" in manager.controllers and manager.idle

        await eventually(looked_after)
        assert manager.ledger.writes == 0


async def test_driver_options_are_validated_by_type(shop: Workshop) -> None:
    async with shop.running():
        await shop.register()
        await shop.active()
        with pytest.raises(StatusError, match="size"):
            await shop.config("bad", size=3)
