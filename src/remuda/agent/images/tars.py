"""tar archives, read with bounds: tarfile would keep every entry, and take names as long as an archive says."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from typing import IO, Any

_ABOUT = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_LONGEST = 1 << 20

BROKEN = (tarfile.TarError, ValueError, OverflowError, KeyError, RecursionError)  # raised at what is no good archive


class _Entry(tarfile.TarInfo):
    def _proc_member(self, archive: Any) -> Any:
        if self.type in _ABOUT and self.size > _LONGEST:
            raise tarfile.ReadError("a name or attribute of more than a megabyte")
        return super()._proc_member(archive)  # type: ignore[misc]


@contextlib.contextmanager
def stream(file: Any) -> Iterator[Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]]:
    """The entries one after the other, each with its content if it is a file, to be read before the next is asked
    for."""
    with tarfile.open(fileobj=file, mode="r|", tarinfo=_Entry) as archive:
        yield _entries(archive)


def _entries(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    while (entry := archive.next()) is not None:
        yield entry, archive.extractfile(entry) if entry.isfile() else None
        archive.members = []  # type: ignore[attr-defined]


@contextlib.contextmanager
def random_access(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    with tarfile.open(fileobj=file, mode="r:", tarinfo=_Entry) as archive:
        yield archive
