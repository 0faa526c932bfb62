"""A machine that cannot have hosts is told so in words, before anything is made; removing nothing works anywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.providers.shared.drivers import nspawn
from remuda.providers.shared.drivers.nspawn import Nspawn, NspawnOptions, commands
from remuda.providers.shared.drivers.spi import BadOptions, Context, DriverError, Order

ORDER = Order(
    driver="nspawn",
    action="create",
    name="one",
    hostname="one",
    namespace="default",
    machine="one",
    uid="uid-1",
    cluster="prairie",
    owner="us",
)


class Record:
    value: Mapping[str, Any] = {}

    private_key = ""

    async def save_private_key(self, private_key: str) -> None:
        raise AssertionError("nothing is made, so nothing is to be remembered")

    async def save(self, value: Mapping[str, Any]) -> None:
        raise AssertionError("hosts are found by their folders")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nspawn:
    """On a machine that has everything, as far as it can be told without it."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("systemd-nspawn", "ip", "mount", "unshare", "tar"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setitem(commands.ENVIRONMENT, "PATH", str(programs))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(nspawn, "_has_overlay", lambda: True)
    monkeypatch.setattr(nspawn.contents, "lacking", list)
    context = Context(credentials={}, record=Record(), say=lambda text: None, directory=tmp_path / "hosts")
    return Nspawn(NspawnOptions(), context)


async def _refusal(driver: Nspawn) -> str:
    with pytest.raises(BadOptions) as caught:
        await driver.create(ORDER, b"")
    assert not driver.context.directory.exists()
    return str(caught.value)


async def test_check_passes_on_complete_machine(driver: Nspawn) -> None:
    await driver.check(ORDER)


async def test_check_requires_root(driver: Nspawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root: run Remuda as root, or use the driver process" in await _refusal(driver)


async def test_check_requires_linux(driver: Nspawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert await _refusal(driver) == "hosts in systemd-nspawn need Linux"


async def test_check_names_missing_programs(driver: Nspawn, tmp_path: Path) -> None:
    (tmp_path / "programs" / "systemd-nspawn").unlink()
    (tmp_path / "programs" / "ip").unlink()
    assert (await _refusal(driver)).startswith("this machine has no systemd-nspawn, ip; install systemd-container")


async def test_check_reports_missing_overlay_file_system(
    driver: Nspawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modprobe = tmp_path / "programs" / "modprobe"
    modprobe.write_text("#!/bin/sh\nexit 1\n")
    modprobe.chmod(0o755)
    monkeypatch.setattr(nspawn, "_has_overlay", lambda: False)
    assert "has no overlay file system" in await _refusal(driver)


async def test_check_rejects_root_image_spread_over_file_systems(
    driver: Nspawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nspawn.contents, "lacking", lambda: ["/var"])
    assert (await _refusal(driver)).startswith("image: /var of this machine are on separate file systems")


@pytest.mark.parametrize("name", ["", "../one", ".images", "a/b"])
async def test_invalid_host_name_is_rejected(driver: Nspawn, name: str) -> None:
    for act in (driver.find, driver.remove):
        with pytest.raises(BadOptions, match=r"is not a valid host name"):
            await act(msgspec.structs.replace(ORDER, name=name))


async def test_remove_and_find_succeed_without_root_when_nothing_exists(
    driver: Nspawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    await driver.remove(ORDER)
    assert await driver.find(ORDER) is None
    assert await driver.owned("us") == []


async def test_unreadable_host_folder_is_an_error(driver: Nspawn, monkeypatch: pytest.MonkeyPatch) -> None:
    (driver.context.directory / "nspawn" / "one").mkdir(parents=True)

    def forbidden(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with pytest.raises(DriverError, match=r"nspawn/one is readable by root only"):
        await driver.owned("us")
