"""Lookup of the driver of a NodeDriver: an installed Python driver, else a driver of rancher-machine.

Importing a driver, starting a program and downloading one are slow, so none of them runs in the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.providers import ProviderError
from remuda.providers.machine import options
from remuda.providers.machine.options import BadModel
from remuda.providers.machine.scope import FoundDriver
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers import NoSuchDriver, known_drivers
from remuda.providers.shared.drivers.spi import Driver
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.machine import NodeDriver

LOCAL = "local://"
PROGRAM = "remuda.dev/driver-program"  # annotation: "rancher-machine" takes its driver even where there is one of ours
_RANCHER_MACHINE = "rancher-machine"


class NotAvailable(ProviderError):
    """The driver cannot be used; the message says why. `reason`: the failed step, in one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def find(driver: NodeDriver, settings: MachineSettings) -> FoundDriver:
    """Raises NotAvailable."""
    name = driver.metadata.name
    native = None if _wants_program(driver) else await asyncio.to_thread(_native, name)
    try:
        return _of_native(native) if native is not None else await _of_program(driver, settings)
    except BadModel as error:
        raise NotAvailable("BadOptionModel", str(error)) from None


def _wants_program(driver: NodeDriver) -> bool:
    if driver.metadata.annotations.get(PROGRAM) == _RANCHER_MACHINE:
        return True
    return driver.spec.url not in ("", LOCAL)


def _native(name: str) -> type[Driver[Any]] | None:
    if name not in drivers.names():
        return None
    try:
        return drivers.find(name)
    except NoSuchDriver as error:
        raise NotAvailable("DriverNotUsable", str(error)) from None


def _of_native(driver: type[Driver[Any]]) -> FoundDriver:
    return FoundDriver(
        name=driver.name,
        model=options.of_driver(driver),
        local=driver.local,
        needs=driver.needs,
        own_loopback=driver.own_loopback,
    )


def _directory(settings: MachineSettings) -> Path:
    return Path(settings.driver_directory).expanduser()


async def _of_program(driver: NodeDriver, settings: MachineSettings) -> FoundDriver:
    from remuda.providers.machine.rancher_machine import flags, program
    from remuda.providers.machine.rancher_machine.driver import RancherMachine

    name, spec = driver.metadata.name, driver.spec
    try:
        found = await program.obtain(
            name,
            spec.url,
            spec.checksum,
            machine=settings.rancher_machine,
            directory=_directory(settings),
        )
        reported = await flags.read(found)
    except program.Unobtainable as error:
        raise NotAvailable("NotDownloaded", str(error)) from None
    except flags.NoFlags as error:
        raise NotAvailable("NoFlags", str(error)) from None
    facts = known_drivers.facts(name, driver.metadata.annotations)
    model = options.of_flags(
        name,
        reported,
        doc=spec.description or f"The driver {name} of rancher-machine.",
        credentials=facts.credentials,
        passwords=facts.secrets,
        files=facts.files,
    )
    here = str(found.machine) if settings.run_jobs else ""  # the image contains it
    checksum = found.checksum or spec.checksum  # Jobs run exactly the program that was inspected
    said: Mapping[str, str] = {"url": spec.url or LOCAL, "checksum": checksum, "machine": here}
    how = {key: value for key, value in said.items() if value}
    if facts.files:
        how["files"] = json.dumps(dict(facts.files), sort_keys=True)
    return FoundDriver(name=name, model=model, needs=RancherMachine.needs, program=how)
