"""Directory that an image is unpacked into. Nothing outside it is written.

A path is walked part by part from the root, as a kernel would if the directory were the root of a file system: symbolic
links within it are followed within it, an absolute one from its root, and `..` never leads out of it. The directory is
private to the agent while it is filled, so no other process changes it between a check and a write.

Everything written is counted, so a decompression bomb fails before the disk is full. `REMUDA_IMAGE_LIMIT_BYTES` and
`REMUDA_IMAGE_LIMIT_ENTRIES` in the agent's environment change the limits of one image.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from typing import IO

from remuda.agent.images import ImageError
from remuda.agent.images.references import shown

BYTES = 16 << 30
ENTRIES = 500_000
_MODE = 0o755  # of directories, and mask for the modes of files; owners are not restored
_HOPS = 40
_PIECE = 1 << 20


class ImageBudget:
    """Remaining part of the limits of one image."""

    def __init__(self, limit: int = BYTES, entries: int = ENTRIES) -> None:
        self.limit = limit
        self.entries = entries
        self._bytes = limit
        self._entries = entries

    def take(self, amount: int) -> None:
        self._bytes -= amount
        if self._bytes < 0:
            raise ImageError(
                f"the image takes more than {self.limit} bytes when unpacked; REMUDA_IMAGE_LIMIT_BYTES allows more"
            )

    def entry(self) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise ImageError(f"the image has more than {self.entries} files; REMUDA_IMAGE_LIMIT_ENTRIES allows more")


def allowance(environment: Mapping[str, str] = os.environ) -> ImageBudget:
    return ImageBudget(
        _number(environment, "REMUDA_IMAGE_LIMIT_BYTES", BYTES),
        _number(environment, "REMUDA_IMAGE_LIMIT_ENTRIES", ENTRIES),
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ImageError(f"{name} is not a number")
    return int(text)


class Tree:
    """Tree of an image. `touched` holds the paths that the current layer has written, with all parent folders: a
    whiteout applies only to the layers below.
    """

    def __init__(self, root: str, allowance: ImageBudget) -> None:
        self.root = os.path.realpath(root)
        self.allowance = allowance
        self.touched: set[str] = set()
        self._folders: dict[tuple[str, ...], str] = {}

    def begin_layer(self) -> None:
        self.touched.clear()

    def directory(self, name: str) -> None:
        parts = split(name)
        if not parts:
            return
        path = self._place(parts)
        found = _look(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            self._remove(path, found)
            os.mkdir(path, _MODE)
        os.chmod(path, _MODE)

    def file(self, name: str, mode: int, content: IO[bytes]) -> None:
        path = self._place(_named(name))
        self._remove(path, _look(path))
        # O_EXCL and O_NOFOLLOW: the file is new, and no link leads out of the tree.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb") as file:
            while piece := content.read(_PIECE):
                self.allowance.take(len(piece))
                file.write(piece)
            os.fchmod(handle, mode & _MODE or _MODE)  # images that were built on Windows have files without a mode

    def symbolic_link(self, name: str, target: str) -> None:
        parts = _named(name)
        if not target or "\0" in target or len(target) > 4095:
            raise ImageError(f"the symbolic link {shown(name)} has no usable target")
        path = self._place(parts)
        self._remove(path, _look(path))
        os.symlink(target, path)
        # A new link may change where the cached paths lead.
        self._folders.clear()

    def hard_link(self, name: str, target: str) -> None:
        parts, of = _named(name), _named(target)
        folder = self._walk(of[:-1], None)
        source = os.path.join(folder, of[-1]) if folder is not None else ""
        found = _look(source) if source else None
        if found is None or stat.S_ISDIR(found.st_mode):
            raise ImageError(f"the hard link {shown(name)} is to {shown(target)}, which is not a file of the image")
        path = self._place(parts)
        existing = _look(path)
        if existing is not None and os.path.samestat(existing, found):
            return
        self._remove(path, existing)
        os.link(source, path, follow_symlinks=False)

    def hide(self, name: str) -> None:
        """Remove what lower layers have at this path."""
        parts = _named(name)
        folder = self._walk(parts[:-1], None)
        if folder is not None:
            self._clear(os.path.join(folder, parts[-1]))

    def hide_content(self, name: str) -> None:
        """Remove what lower layers have in this folder."""
        folder = self._walk(split(name), None)
        if folder is not None:
            for inner in os.listdir(folder):
                self._clear(os.path.join(folder, inner))

    def _clear(self, path: str) -> None:
        found = _look(path)
        if path not in self.touched:
            self._remove(path, found)
        elif found is not None and stat.S_ISDIR(found.st_mode):
            for inner in os.listdir(path):
                self._clear(os.path.join(path, inner))

    def _place(self, parts: tuple[str, ...]) -> str:
        """Return the path of an entry, and create its missing parent folders."""
        self.allowance.entry()
        folder = self._folders.get(parts[:-1])
        if folder is None:
            folder = self._walk(parts[:-1], self._make)
            assert folder is not None
            self._folders[parts[:-1]] = folder
        path = os.path.join(folder, parts[-1])
        above = path
        while above not in self.touched and above != self.root:
            self.touched.add(above)
            above = os.path.dirname(above)
        return path

    def _make(self, path: str, found: os.stat_result | None) -> None:
        self.allowance.entry()
        self._remove(path, found)
        os.mkdir(path, _MODE)
        os.chmod(path, _MODE)

    def _walk(self, parts: tuple[str, ...], make: Callable[[str, os.stat_result | None], None] | None) -> str | None:
        """Return the folder at this path; None if it does not exist and `make` is None."""
        path, left, hops = self.root, list(reversed(parts)), 0
        while left:
            part = left.pop()
            if part == "..":
                if path == self.root:
                    raise ImageError("the image writes a file through a symbolic link that leads out of the image")
                path = os.path.dirname(path)
                continue
            further = os.path.join(path, part)
            found = _look(further)
            if found is not None and stat.S_ISLNK(found.st_mode):
                hops += 1
                if hops > _HOPS:
                    raise ImageError("symbolic links of the image form a loop")
                target = os.readlink(further)
                path = self.root if target.startswith("/") else path
                left.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
                continue
            if found is None or not stat.S_ISDIR(found.st_mode):
                if make is None:
                    return None
                make(further, found)
            path = further
        return path

    def _remove(self, path: str, found: os.stat_result | None) -> None:
        if found is None:
            return
        self._folders.clear()
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def split(name: str) -> tuple[str, ...]:
    """Split a name in an archive into its parts; a leading slash is the root of the image."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ImageError(f"the image holds {shown(name)}: a path with .. is refused")
    if "\0" in name or any(len(os.fsencode(part)) > 255 for part in parts) or len(parts) > 200:
        raise ImageError(f"the image holds {shown(name)}, which is not a path")
    return parts


def _named(name: str) -> tuple[str, ...]:
    parts = split(name)
    if not parts:
        raise ImageError(f"the image holds {shown(name)}, which is an empty path")
    return parts


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
