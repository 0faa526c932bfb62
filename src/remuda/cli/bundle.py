"""Support bundle: a compressed tar of texts that only its owner can read, written atomically."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from remuda.cli import CliError

_MODE = 0o600


class AlreadyThere(CliError):
    """The file exists and may not be overwritten."""


def write(path: Path, folder: str, texts: Mapping[str, str], *, moment: float, force: bool = False) -> int:
    """Write the archive and return its size. `folder`: the top folder in the archive. Raises OSError, AlreadyThere."""
    if not force and path.exists():
        raise AlreadyThere(str(path))
    with _draft(path) as (draft, file):
        with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            for name, text in texts.items():
                content = text.encode()
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mode, entry.mtime = len(content), _MODE, int(moment)
                archive.addfile(entry, io.BytesIO(content))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        _put(draft, path, force)
    return size


@contextlib.contextmanager
def _draft(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a temporary file next to `path`, and remove it afterwards."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            yield draft, file
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def _put(draft: Path, path: Path, force: bool) -> None:
    if force:
        draft.replace(path)
        return
    try:
        os.link(draft, path)  # unlike a rename, this never overwrites a file
    except FileExistsError:
        raise AlreadyThere(str(path)) from None
