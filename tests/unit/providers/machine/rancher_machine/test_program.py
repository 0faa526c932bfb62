"""Where a driver's program comes from, and what is refused."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from aiohttp import web

from remuda.providers.machine.rancher_machine.program import MACHINE_VARIABLE, Unobtainable, obtain, unpack

PROGRAM = b"#!/bin/sh\nexit 0\n"


@pytest.fixture
def machine(tmp_path: Path) -> str:
    return str(_program(tmp_path / "rancher-machine"))


def _program(path: Path) -> Path:
    path.write_bytes(PROGRAM)
    path.chmod(0o755)
    return path


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _zip(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("README", "hello")
        archive.writestr(name, PROGRAM)
    return made.getvalue()


def _tar(*names: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(PROGRAM)
            archive.addfile(entry, io.BytesIO(PROGRAM))
    return made.getvalue()


async def test_built_in_driver_uses_rancher_machine(machine: str, tmp_path: Path) -> None:
    found = await obtain("digitalocean", "local://", "", machine=machine, directory=tmp_path)
    assert (found.driver, str(found.machine), found.plugin) == ("digitalocean", machine, None)


async def test_missing_rancher_machine_error_names_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(MACHINE_VARIABLE, raising=False)
    with pytest.raises(Unobtainable, match="--rancher-machine"):
        await obtain("digitalocean", "local://", "", directory=tmp_path)


async def test_local_plugin_checksum_is_verified(machine: str, tmp_path: Path) -> None:
    plugin = _program(tmp_path / "docker-machine-driver-x")
    found = await obtain("x", str(plugin), _sha256(PROGRAM), machine=machine, directory=tmp_path)
    assert found.plugin == plugin
    with pytest.raises(Unobtainable, match="expected 0000"):
        await obtain("x", str(plugin), "0" * 64, machine=machine, directory=tmp_path)
    with pytest.raises(Unobtainable, match="cannot read"):
        await obtain("x", str(tmp_path / "nothing"), "", machine=machine, directory=tmp_path)


@pytest.mark.parametrize(
    "content",
    [PROGRAM, _zip("docker-machine-driver-x"), _tar("bin/docker-machine-driver-x-linux-amd64")],
    ids=["plain", "zip", "tar.gz"],
)
async def test_plugin_url_is_downloaded_once(content: bytes, machine: str, tmp_path: Path) -> None:
    asked = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=content)

    app = web.Application()
    app.router.add_get("/driver", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        url = f"http://127.0.0.1:{port}/driver"
        with pytest.raises(Unobtainable, match="not encrypted"):
            await obtain("x", url, "", machine=machine, directory=tmp_path)
        for _ in range(2):
            found = await obtain("x", url, _sha256(content), machine=machine, directory=tmp_path / "kept")
            assert found.plugin is not None
            assert found.plugin.name == "docker-machine-driver-x"
            assert found.plugin.read_bytes() == PROGRAM
            assert os.access(found.plugin, os.X_OK)
        assert len(asked) == 1
        with pytest.raises(Unobtainable, match="answers 404"):
            await obtain("x", f"{url}-not", "0" * 64, machine=machine, directory=tmp_path)
        with pytest.raises(Unobtainable, match="expected 0000"):
            await obtain("x", url, "0" * 64, machine=machine, directory=tmp_path)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("url", ["ftp://x/y", "javascript:alert(1)"])
async def test_unsupported_url_schemes_are_rejected(url: str, machine: str, tmp_path: Path) -> None:
    with pytest.raises(Unobtainable, match="cannot load a driver from"):
        await obtain("x", url, "", machine=machine, directory=tmp_path)


def test_programs_of_an_archive_share_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.providers.machine.rancher_machine.program._MOST_BYTES", len(PROGRAM))
    assert unpack(_tar("docker-machine-driver-a"), "it") == PROGRAM
    with pytest.raises(Unobtainable, match="too large for a driver"):
        unpack(_tar("docker-machine-driver-a", "docker-machine-driver-b"), "it")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (_zip("other"), "but contains none"),
        (b"PK\x03\x04nonsense", "damaged"),
        (b"\x1f\x8bnonsense", "damaged"),
        (b"<html>", "not a program"),
    ],
)
def test_content_without_driver_program_is_rejected(content: bytes, complaint: str) -> None:
    with pytest.raises(Unobtainable, match=complaint):
        unpack(content, "it")
