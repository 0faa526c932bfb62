"""Files on their way to the store, in pieces, each under the checksum that it is to have.

    .uploads/<sha256>       what has arrived of it; the store does not see it

A piece goes to the end of what is there, so an upload that was cut off goes on where it ended. Nothing is believed of
a file before the store has computed its checksum. Memory is bounded by the piece, the disk by `most_bytes` for all
uploads together and by a reserve that is left free; what nobody has continued for a day is removed by the next upload.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

from remuda.kube import clock
from remuda.providers.controlplane.artefacts import BadArtefact

MOST_PIECE = 2 * 1024 * 1024
MOST_BYTES = 32 * 1024**3
RESERVE_BYTES = 512 * 1024**2

_FOLDER = ".uploads"
_SUM = re.compile("[0-9a-f]{64}", re.ASCII)
_STALE_SECONDS = 24 * 3600.0


class WrongOffset(Exception):
    """The piece does not continue what is there."""

    def __init__(self, present: int) -> None:
        super().__init__(f"{present} bytes are there")
        self.present = present


class NoSpace(Exception):
    """In words."""


class Uploads:
    def __init__(self, store: Path, *, most_bytes: int = MOST_BYTES, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = store / _FOLDER
        self._most_bytes = most_bytes
        self._reserve_bytes = reserve_bytes

    def path(self, checksum: str) -> Path:
        """Raises BadArtefact."""
        if _SUM.fullmatch(checksum) is None:
            raise BadArtefact(f"{checksum[:80]!r} is not a sha256: 64 hexadecimal digits in lower case")
        return self._folder / checksum

    def present(self, checksum: str) -> int:
        """Return how many bytes of a file have arrived."""
        try:
            return self.path(checksum).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, checksum: str, offset: int, piece: bytes) -> int:
        """Return how many bytes are there then. Raises WrongOffset, NoSpace, BadArtefact."""
        path = self.path(checksum)
        self._folder.mkdir(parents=True, exist_ok=True)
        if offset == 0:
            self._prune()
        self._check_space(len(piece))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # several replicas may share the folder
            present = os.fstat(descriptor).st_size
            if offset != present:
                raise WrongOffset(present)
            file.seek(present)
            file.write(piece)
        return present + len(piece)

    def remove(self, checksum: str) -> None:
        self.path(checksum).unlink(missing_ok=True)

    def _check_space(self, more: int) -> None:
        sizes = [one.stat().st_size for one in self._folder.iterdir()]
        if sum(sizes) + more > self._most_bytes:
            raise NoSpace(f"uploads that were not finished take {sum(sizes)} bytes in {self._folder}: remove some")
        free = shutil.disk_usage(self._folder).free
        if free - more < self._reserve_bytes:
            raise NoSpace(f"the file system of {self._folder} has only {free} bytes left")

    def _prune(self) -> None:
        for one in self._folder.iterdir():
            if clock.time() - one.stat().st_mtime > _STALE_SECONDS:
                one.unlink(missing_ok=True)
