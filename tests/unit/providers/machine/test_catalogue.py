"""From a NodeDriver to a driver: ours by name, else a program; what cannot be had is told in words."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from remuda.kube.objects import Field, ObjectMeta
from remuda.providers.machine.catalogue import PROGRAM, NotAvailable, find
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers.spi import Driver, Options
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.machine import NodeDriver, NodeDriverSpec


class ToyOptions(Options):
    colour: Annotated[str, Field("Of the toy.")] = "red"


class Toy(Driver[Any]):
    name: ClassVar[str] = "toy"
    doc: ClassVar[str] = "Toys."
    options_type: ClassVar[type[Any]] = ToyOptions


def driver(name: str, url: str = "local://", **annotations: str) -> NodeDriver:
    return NodeDriver(
        metadata=ObjectMeta(name=name, annotations=annotations), spec=NodeDriverSpec(url=url, active=True)
    )


@pytest.fixture
def without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineSettings:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("REMUDA_RANCHER_MACHINE", raising=False)
    return MachineSettings(driver_directory=str(tmp_path))


@pytest.mark.parametrize("url", ["", "local://"])
async def test_built_in_driver_is_found_by_name(url: str) -> None:
    found = await find(driver("process", url), MachineSettings())
    assert (found.name, found.local, found.program) == ("process", True, {})
    assert found.kind.name == "ProcessMachine"


async def test_unknown_driver_name_uses_rancher_machine(without_programs: MachineSettings) -> None:
    with pytest.raises(NotAvailable, match="rancher-machine") as raised:
        await find(driver("digitalocean"), without_programs)
    assert raised.value.reason == "NotDownloaded"


async def test_annotation_selects_rancher_machine_over_built_in_driver(without_programs: MachineSettings) -> None:
    with pytest.raises(NotAvailable, match="rancher-machine"):
        await find(driver("amazonec2", **{PROGRAM: "rancher-machine"}), without_programs)


async def test_broken_driver_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "remuda.no_such_module:Driver", drivers.ENTRY_POINTS)
    monkeypatch.setattr(drivers, "_points", lambda: (broken,))
    with pytest.raises(NotAvailable, match="cannot load driver broken") as raised:
        await find(driver("broken"), MachineSettings())
    assert raised.value.reason == "DriverNotUsable"


async def test_driver_of_another_package_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    third = EntryPoint("toy", f"{__name__}:Toy", drivers.ENTRY_POINTS)
    monkeypatch.setattr(drivers, "_points", lambda: (third,))
    found = await find(driver("toy"), MachineSettings())
    assert [option.flag for option in found.model.options] == ["--toy-colour"]
