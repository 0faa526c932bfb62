"""Lower file systems of the hosts' layers: this machine, a directory, or the content of a tarball.

A tarball is unpacked once. Hosts share its content, which is deleted with the last of them: a host records in its
folder which image it needs before it checks whether the image exists.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from remuda.providers.shared.drivers.nspawn.commands import run
from remuda.providers.shared.drivers.nspawn.locks import dissolve, inhabitants, locked
from remuda.runtime.steps import step

UNPACK = step("nspawn.unpack-image", "unpacks the image tarball of hosts")
_PART = ".part"


def place(image: str, home: Path) -> Path:
    """Return the directory of the image's file system, which may not be unpacked yet."""
    path = Path(image or "/")
    if path.is_dir():
        return path
    looks = path.stat()
    digest = hashlib.sha256(f"{path}\0{looks.st_size}\0{looks.st_mtime_ns}".encode()).hexdigest()[:16]
    return home / digest


async def unpack(tarball: Path, into: Path) -> None:
    """Raises DriverError."""
    async with locked(into.parent):
        if into in inhabitants(into.parent):
            return
        part = into.with_suffix(_PART)
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
        part.mkdir()
        async with UNPACK:
            await run(
                *("tar", "--extract", "--numeric-owner", "--xattrs"),
                *("--file", str(tarball), "--directory", str(part)),
            )
            part.rename(into)


async def clear(home: Path, used: Callable[[], set[str]]) -> None:
    """Delete the images that no host needs."""
    if not await asyncio.to_thread(home.is_dir):
        return
    async with locked(home):
        needed = used()
        for image in inhabitants(home):
            if str(image) not in needed:
                await asyncio.to_thread(shutil.rmtree, image)
        if not inhabitants(home):
            dissolve(home)
