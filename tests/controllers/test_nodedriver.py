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


class NodeDriverHarness:
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
async def harness(engine: Engine) -> AsyncIterator[NodeDriverHarness]:
    await engine.install([*setup.definitions(), *bootstrap_definitions.definitions()])
    harness = NodeDriverHarness(engine, await engine.namespace())
    yield harness
    found = await engine.get(NODE_DRIVER.target, "", harness.driver)
    if found is not None:  # discovery of others shall not see it for ever
        await engine.patch(NODE_DRIVER.target, "", harness.driver, {"metadata": {"finalizers": None}})
        if not found["metadata"].get("deletionTimestamp"):
            await engine.delete(NODE_DRIVER.target, "", harness.driver)


async def test_active_driver_has_its_kinds_served_at_once(harness: NodeDriverHarness) -> None:
    async with harness.running() as manager:
        await harness.register()
        found = await harness.active()
        assert is_true(found, "Downloaded")
        assert is_true(found, "Installed")

        listed = decode(await harness.engine.client.raw_get("/apis/rke-machine.cattle.io/v1"))
        kinds = {resource["kind"] for resource in listed["resources"]}
        assert {f"{capital(harness.driver)}Machine", f"{capital(harness.driver)}MachineTemplate"} <= kinds
        configs = decode(await harness.engine.client.raw_get("/apis/rke-machine-config.cattle.io/v1"))
        assert f"{capital(harness.driver)}Config" in {resource["kind"] for resource in configs["resources"]}

        assert (await harness.config())["size"] == "small", "defaults are in the Config, at its root"
        await harness.machine()
        kind = machine_kind(harness.driver)
        waiting = await harness.engine.until(
            kind.target, harness.namespace, "m", lambda obj: condition(obj, "Ready").get("reason") == "WaitingForOwner"
        )
        assert "size" not in waiting["spec"]
        assert kind.name.lower() in manager.controllers


async def test_driver_definitions_have_cluster_api_labels(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
        for suffix in ("Machine", "MachineTemplate", "Config"):
            found = await harness.definition(f"{capital(harness.driver)}{suffix}")
            assert found is not None
            labels = found["metadata"]["labels"]
            assert labels["cluster.x-k8s.io/v1beta1"] == "v1"
            assert labels["cluster.x-k8s.io/v1beta2"] == "v1"
            assert "clusterctl.cluster.x-k8s.io" in labels


async def test_changed_driver_updates_kinds_and_keeps_machines(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
        machine = await harness.machine()
        template = await _template(harness)
        harness.flags.append(Flag(name=f"{harness.driver}-zone", type="string", default="a", doc="Where."))
        await harness.switch(description="now with zones")
        await harness.until(lambda obj: condition(obj, "Active").get("observedGeneration") == 2)
        assert (await harness.config("y"))["zone"] == "a"

        kind = machine_kind(harness.driver)
        now = await harness.engine.get(kind.target, harness.namespace, "m")
        assert now is not None
        assert now["metadata"]["uid"] == machine["metadata"]["uid"]
        assert now["spec"] == machine["spec"]
        kept = await harness.engine.get(template_kind(harness.driver).target, harness.namespace, "t")
        assert kept == template


async def _template(harness: NodeDriverHarness) -> Json:
    kind = template_kind(harness.driver)
    obj = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "t"},
        "spec": {"clusterName": "c", "template": {"spec": {"size": "large", "common": {"labels": {"a": "b"}}}}},
    }
    return await harness.engine.create(kind.target, harness.namespace, obj)


async def test_deletion_of_driver_in_use_waits_and_names_users(harness: NodeDriverHarness) -> None:
    async with harness.running() as manager:
        await harness.register()
        await harness.active()
        await harness.config("mine")
        for number in range(7):
            await harness.machine(f"m{number}")
        await harness.engine.delete(NODE_DRIVER.target, "", harness.driver)
        found = await harness.until(lambda obj: condition(obj, "Active").get("reason") == "InUse")
        message = condition(found, "Active")["message"]
        assert f"{capital(harness.driver)}Machine {harness.namespace}/m0" in message
        assert "and more" in message
        assert is_true(found, "Active"), "its machines are still looked after"

        for number in range(7):
            await harness.engine.delete(machine_kind(harness.driver).target, harness.namespace, f"m{number}")
        found = await harness.until(lambda obj: "Config" in condition(obj, "Active")["message"])
        await harness.engine.delete(config_kind(harness.driver).target, harness.namespace, "mine")
        await harness.engine.gone(NODE_DRIVER.target, "", harness.driver)
        for suffix in ("Machine", "MachineTemplate", "Config"):
            await harness.engine.gone(DEFINITION.target, "", _name(harness, suffix))
        assert f"{harness.driver}machine" not in manager.controllers
        assert machine_kind(harness.driver).target not in manager.caches.errors


async def test_deleting_driver_still_reconciles_machines_after_restart(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
        await harness.machine()
        await harness.engine.delete(NODE_DRIVER.target, "", harness.driver)
        await harness.until(lambda obj: condition(obj, "Active").get("reason") == "InUse")
    async with harness.running():
        await harness.machine("late")
        kind = machine_kind(harness.driver)
        await harness.engine.until(kind.target, harness.namespace, "late", lambda obj: condition(obj, "Ready"))


def _name(harness: NodeDriverHarness, suffix: str) -> str:
    group = "rke-machine-config.cattle.io" if suffix == "Config" else "rke-machine.cattle.io"
    return f"{harness.driver}{suffix.lower()}s.{group}"


async def test_driver_can_be_switched_off_and_on_again(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
        await harness.switch(active=False)
        await harness.until(lambda obj: condition(obj, "Active").get("reason") == "Inactive")
        await harness.engine.gone(DEFINITION.target, "", _name(harness, "Machine"))

        await harness.switch(active=True)
        await harness.active()
        await harness.machine()
        kind = machine_kind(harness.driver)
        await harness.engine.until(kind.target, harness.namespace, "m", lambda obj: condition(obj, "Ready"))


async def test_foreign_definitions_are_not_overwritten_or_deleted(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
        await harness.switch(active=False)
        await harness.until(lambda obj: condition(obj, "Active").get("reason") == "Inactive")
        name = _name(harness, "Machine")
        await harness.engine.gone(DEFINITION.target, "", name)
        foreign = {
            "apiVersion": DEFINITION.api_version,
            "kind": DEFINITION.name,
            "metadata": {"name": name},
            "spec": {
                "group": "rke-machine.cattle.io",
                "scope": "Namespaced",
                "names": {"kind": f"{capital(harness.driver)}Machine", "plural": name.partition(".")[0]},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ],
            },
        }
        await harness.engine.create(DEFINITION.target, "", foreign)
        try:
            await harness.switch(active=True)
            found = await harness.until(lambda obj: condition(obj, "Installed").get("reason") == "ForeignDefinitions")
            assert name in condition(found, "Active")["message"]
            await harness.engine.delete(NODE_DRIVER.target, "", harness.driver)
            await harness.engine.gone(NODE_DRIVER.target, "", harness.driver)
            assert await harness.engine.get(DEFINITION.target, "", name) is not None
        finally:
            await harness.engine.delete(DEFINITION.target, "", name)


async def test_unavailable_driver_is_reported_and_serves_no_kinds(harness: NodeDriverHarness) -> None:
    harness.error = NotAvailable("NotDownloaded", "https://example.com/x answers 404")
    async with harness.running():
        await harness.register()
        found = await harness.until(lambda obj: condition(obj, "Downloaded").get("status") == "False")
        assert condition(found, "Downloaded")["message"] == "https://example.com/x answers 404"
        assert condition(found, "Active")["status"] == "False"
        assert await harness.definition(f"{capital(harness.driver)}Machine") is None

        harness.error = None
        await harness.switch(description="try again")
        await harness.active()


async def test_modified_definition_is_restored(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
        name = _name(harness, "Config")
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        found = await harness.engine.get(DEFINITION.target, "", name)
        assert found is not None
        version = {**found["spec"]["versions"][0], "schema": {"openAPIV3Schema": schema}}
        await harness.engine.patch(DEFINITION.target, "", name, {"spec": {"versions": [version]}})
        await harness.engine.until(
            DEFINITION.target,
            "",
            name,
            lambda obj: "size" in obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"].get("properties", {}),
        )


async def test_idle_driver_writes_nothing(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
    async with harness.running() as manager:

        async def looked_after() -> bool:
            return f"{harness.driver}machine" in manager.controllers and manager.idle

        await eventually(looked_after)
        assert manager.ledger.writes == 0


async def test_driver_options_are_validated_by_type(harness: NodeDriverHarness) -> None:
    async with harness.running():
        await harness.register()
        await harness.active()
        with pytest.raises(StatusError, match="size"):
            await harness.config("bad", size=3)
