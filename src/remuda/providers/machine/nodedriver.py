"""The NodeDriver controller: it installs the three kinds of an active driver and starts the controller of its machines.

A changed driver gets new CRDs; existing machines keep their servers. A driver that is deactivated or deleted waits
until no object of its kinds is left, and lists those that are; only then are its CRDs deleted. CRDs of other programs
are never changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from remuda.capi.external import DEFINITION as DEFINITION_HEAD
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, condition, put
from remuda.kube.definitions import DEFINITION
from remuda.kube.errors import Conflict, NotFound, StatusError, ignore_not_found
from remuda.kube.objects import Key, Kind, Object
from remuda.providers.machine import catalogue, definitions
from remuda.providers.machine.catalogue import NotAvailable
from remuda.providers.machine.machine import DriverMachines
from remuda.providers.machine.scope import FoundDriver, MachineContext
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.machine import NODE_DRIVER, NodeDriver, config_kind, machine_kind, template_kind
from remuda.runtime.definitions import ForeignDefinitions, NotEstablished, install, is_ours
from remuda.runtime.draft import Draft, save
from remuda.runtime.outcome import DONE, Blocked, Outcome, Retryable
from remuda.runtime.steps import step

PROTECT = step("nodedriver.protect", "adds a driver's finalizer before its kinds are installed")
PUBLISH = step("nodedriver.publish", "writes whether a driver's kinds are served")
UNINSTALL = step("nodedriver.uninstall", "deletes a CRD of a driver that is no longer used")
RELEASE = step("nodedriver.release", "removes the finalizer of a driver whose kinds are deleted")

CONTROLLER = "nodedriver"
FINALIZER = "remuda.dev/node-driver"

# Conditions.
DOWNLOADED = "Downloaded"
INSTALLED = "Installed"
ACTIVE = "Active"

_NAMED = 5  # objects in use that a message names
_FOREIGN_SECONDS = 60.0  # another program may delete its CRD
_UNAVAILABLE_SECONDS = 60.0  # an administrator may install the program


Find = Callable[[NodeDriver, MachineSettings], Awaitable[FoundDriver]]


class NodeDrivers:
    """`find`: how a driver is had; raises NotAvailable."""

    def __init__(self, world: MachineContext, find: Find = catalogue.find) -> None:
        self._world = world
        self._look_up = find
        self._client = world.client
        self._drivers = world.manager.caches.of(NODE_DRIVER)
        self._found: dict[str, tuple[object, FoundDriver]] = {}  # by name: the search criteria, and the result
        self.serving: dict[str, DriverMachines] = {}
        manager = world.manager
        self._controller = manager.controller(CONTROLLER, NODE_DRIVER, self.reconcile, concurrency=5)
        installed = manager.caches.of(DEFINITION_HEAD, metadata_only=True)
        self._controller.watch(installed, _of_definition, "definitions", facts=_definition_facts)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._drivers.raw(*key)
        if value is None:
            self._found.pop(key.name, None)
            return DONE
        driver = NODE_DRIVER.decode(value)
        if driver.metadata.deleting or not driver.spec.active:
            return await self._retire(driver, value)
        return await self._serve(driver, value)

    # ---- in service ----------------------------------------------------------------------------------------------

    async def _serve(self, driver: NodeDriver, value: bytes) -> Outcome:
        draft = Draft(NODE_DRIVER.target, value)
        draft.add_finalizer(FINALIZER)
        # Before the kinds are installed: a driver that is deleted in between would leave CRDs that nobody deletes.
        draft = Draft(NODE_DRIVER.target, await save(self._client, draft, PROTECT))
        try:
            found = await self._find(driver)
        except NotAvailable as error:
            await self._say(draft, _unavailable(error))
            return Blocked(error.reason, f"NodeDriver {driver.key}", str(error), _UNAVAILABLE_SECONDS)
        try:
            await install(self._client, definitions.of_driver(found.model))
        except ForeignDefinitions as error:
            await self._say(draft, _not_installed("ForeignDefinitions", str(error)))
            return Blocked("ForeignDefinitions", ", ".join(error.names), str(error), _FOREIGN_SECONDS)
        except NotEstablished as error:
            await self._say(draft, _not_installed("NotEstablished", str(error)))
            raise Retryable(str(error)) from None
        except Conflict:
            raise
        except StatusError as error:
            await self._say(draft, _not_installed("Refused", error.message))
            raise
        self._look_after(found)
        kinds = ", ".join(kind.name for kind in _kinds(found.name))
        source = "rancher-machine" if found.program else "built-in driver"
        await self._say(
            draft,
            [
                (DOWNLOADED, TRUE, "Available", source),
                (INSTALLED, TRUE, "Served", f"{kinds} are served"),
                (ACTIVE, TRUE, "Active", ""),
            ],
        )
        return DONE

    async def _find(self, driver: NodeDriver) -> FoundDriver:
        """Find the driver, once for each state of the NodeDriver: starting its program is slow. Raises NotAvailable."""
        spec, name = driver.spec, driver.metadata.name
        by = (spec.url, spec.checksum, spec.description, driver.metadata.annotations, driver.metadata.uid)
        present = self._found.get(name)
        if present is not None and present[0] == by:
            return present[1]
        found = await self._look_up(driver, self._world.settings)
        self._found[name] = (by, found)
        return found

    def _look_after(self, found: FoundDriver) -> None:
        present = self.serving.get(found.name)
        if present is None:
            self.serving[found.name] = DriverMachines(self._world, found)
        else:
            present.driver = found

    # ---- out of service ------------------------------------------------------------------------------------------

    async def _retire(self, driver: NodeDriver, value: bytes) -> Outcome:
        draft = Draft(NODE_DRIVER.target, value)
        name = driver.metadata.name
        if FINALIZER in driver.metadata.finalizers:
            used = await self._in_use(name)
            if used:
                return await self._wait(driver, draft, used)
            # Stop the controller before its kinds are deleted, because it watches them.
            await self._stop(name)
            for definition in definitions.definition_names(name):
                await self._uninstall(name, definition)
            draft.remove_finalizer(FINALIZER)
            if driver.metadata.deleting:
                await save(self._client, draft, RELEASE)
                return DONE
        if driver.metadata.deleting:
            return DONE
        news = [(kind, FALSE, "Inactive", "spec.active is false") for kind in (INSTALLED, ACTIVE)]
        await self._say(draft, news)
        return DONE

    async def _wait(self, driver: NodeDriver, draft: Draft, used: str) -> Outcome:
        """Wait until the driver is unused. Its machines are still reconciled; otherwise they could not be deleted."""
        try:
            self._look_after(await self._find(driver))
        except NotAvailable as error:
            used = f"{used}; no controller reconciles them: {error}"
        will = "deleted" if driver.metadata.deleting else "deactivated"
        message = f"waiting to be {will} until these are deleted: {used}"
        await self._say(draft, [(ACTIVE, TRUE, "InUse", message)])
        return Blocked("InUse", used, message, self._world.settings.in_use_seconds)

    async def _in_use(self, name: str) -> str:
        """Return the names of existing objects of the driver's kinds, as text; empty if there are none."""
        places: list[str] = []
        more = False
        for kind in _kinds(name):
            try:
                listing = await self._client.list(kind.target, limit=_NAMED + 1, metadata_only=True)
            except NotFound:
                continue
            heads = [msgspec.json.decode(item, type=_Head).metadata for item in listing.items]
            more = more or len(heads) > _NAMED
            places += [f"{kind.name} {head.namespace}/{head.name}" for head in heads[:_NAMED]]
        return ", ".join(places[:_NAMED]) + (" and more" if more or len(places) > _NAMED else "")

    async def _stop(self, name: str) -> None:
        machines = self.serving.pop(name, None)
        if machines is not None:
            await self._world.manager.end_controller(machines.name)
        self._found.pop(name, None)

    async def _uninstall(self, driver: str, name: str) -> None:
        with ignore_not_found():
            found: dict[str, Any] = msgspec.json.decode(await self._client.get(DEFINITION.target, "", name))
            labels = found["metadata"].get("labels") or {}
            if is_ours(found) and labels.get(definitions.DRIVER_LABEL) == driver:
                async with UNINSTALL:
                    await self._client.delete(DEFINITION.target, "", name, uid=found["metadata"]["uid"])
        for kind in _kinds(driver):
            if f"{kind.plural}.{kind.group}" == name:
                await self._world.manager.caches.forget(kind.target)

    # ---- telling -------------------------------------------------------------------------------------------------

    async def _say(self, draft: Draft, news: Sequence[tuple[str, str, str, str]]) -> None:
        generation = draft.metadata.get("generation", 0)
        put(draft.status, [condition(*one) for one in news], generation=generation)
        await save(self._client, draft, PUBLISH)


class _Named(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Head(msgspec.Struct):
    metadata: _Named


def _kinds(driver: str) -> tuple[Kind[Any], ...]:
    return machine_kind(driver), template_kind(driver), config_kind(driver)


def _unavailable(error: NotAvailable) -> list[tuple[str, str, str, str]]:
    return [
        (DOWNLOADED, FALSE, error.reason, str(error)),
        (INSTALLED, UNKNOWN, error.reason, "the driver is not available"),
        (ACTIVE, FALSE, error.reason, str(error)),
    ]


def _not_installed(reason: str, message: str) -> list[tuple[str, str, str, str]]:
    return [(INSTALLED, FALSE, reason, message), (ACTIVE, FALSE, reason, message)]


def _of_definition(definition: Object) -> Iterable[Key]:
    driver = definition.metadata.labels.get(definitions.DRIVER_LABEL)
    return () if driver is None else (Key("", driver),)


def _definition_facts(definition: Object) -> object:
    metadata = definition.metadata
    return metadata.uid, metadata.generation, metadata.deleting, metadata.labels
