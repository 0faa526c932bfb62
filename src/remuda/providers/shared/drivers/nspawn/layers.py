"""Layers of a host's file system: the lower one, which is this machine, a directory or the content of a tarball, and
the writable one, with what is written, hidden and enabled before the host boots for the first time.

A tarball is unpacked once. Hosts share its content, which is deleted with the last of them: a host records in its
folder which image it needs before it checks whether the image exists.

The writable layer is written while it is not mounted, as files of the overlay's upper folder: a character device 0/0
hides what lies below, and so does a folder that is marked opaque. A folder that only holds something of ours looks as
it does below.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from remuda.providers.shared.drivers.nspawn.commands import run
from remuda.providers.shared.drivers.nspawn.locks import delete_locked_folder, folder_entries, locked
from remuda.runtime.steps import step

UNPACK = step("nspawn.unpack-image", "unpacks the image tarball of hosts")

_PART = ".part"
_OPAQUE = "trusted.overlay.opaque"


def image_folder(image: str, home: Path) -> Path:
    """Return the directory of the image's file system, which may not be unpacked yet."""
    path = Path(image or "/")
    if path.is_dir():
        return path
    looks = path.stat()
    digest = hashlib.sha256(f"{path}\0{looks.st_size}\0{looks.st_mtime_ns}".encode()).hexdigest()[:16]
    return home / digest


async def unpack_image(tarball: Path, into: Path) -> None:
    """Raises DriverError."""
    async with locked(into.parent):
        if into in folder_entries(into.parent):
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


async def clear_images(home: Path, used: Callable[[], set[str]]) -> None:
    """Delete the images that no host needs."""
    if not await asyncio.to_thread(home.is_dir):
        return
    async with locked(home):
        needed = used()
        for image in folder_entries(home):
            if str(image) not in needed:
                await asyncio.to_thread(shutil.rmtree, image)
        if not folder_entries(home):
            delete_locked_folder(home)


class Layer:
    def __init__(self, upper: Path, lower: Path) -> None:
        self._upper = upper
        self._lower = lower

    def write(self, path: str, content: bytes | str, *, mode: int = 0o644, owner: tuple[int, int] = (0, 0)) -> None:
        target = self._ready(path)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            os.fchown(descriptor, *owner)
            file.write(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, target: str) -> None:
        self._ready(path).symlink_to(target)

    def hide(self, path: str) -> None:
        """Hide a file of the lower layer; write nothing if it does not exist there."""
        if os.path.lexists(self._below(path)):
            os.mknod(self._ready(path), stat.S_IFCHR, os.makedev(0, 0))

    def empty(self, path: str, *, keep_folders: bool = False) -> None:
        """Empty a folder of the lower layer, or keep only its subfolders."""
        folder = self._folder(PurePosixPath(path))
        os.setxattr(folder, _OPAQUE, b"y")
        if keep_folders:
            for below, names, _ in os.walk(self._below(path)):
                for name in names:
                    if not os.path.islink(os.path.join(below, name)):
                        self._folder(PurePosixPath(os.path.relpath(os.path.join(below, name), self._lower)))

    def folder(self, path: str, *, mode: int, owner: tuple[int, int]) -> None:
        target = self._folder(PurePosixPath(path))
        target.chmod(mode)
        os.chown(target, *owner)

    def read(self, path: str) -> str:
        """Return the text of a file of the image; empty if the image has no such file."""
        try:
            return self._below(path).read_text(errors="replace")
        except OSError:
            return ""

    def has(self, path: str) -> bool:
        return os.path.lexists(self._below(path))

    def _ready(self, path: str) -> Path:
        """Return the path in the layer to write to: create its folder and delete an earlier file of ours."""
        folder = self._folder(PurePosixPath(path).parent)
        target = folder / PurePosixPath(path).name
        if os.path.lexists(target):
            target.unlink()
        return target

    def _folder(self, path: PurePosixPath) -> Path:
        target = self._upper / str(path).lstrip("/")
        if target == self._upper or target.is_dir():
            return target
        self._folder(path.parent)
        target.mkdir()
        below = self._below(str(path))
        if below.is_dir():
            looks = below.stat()
            os.chown(target, looks.st_uid, looks.st_gid)
            target.chmod(stat.S_IMODE(looks.st_mode))
        return target

    def _below(self, path: str) -> Path:
        return self._lower / path.lstrip("/")
