"""Compressed streams, recognized by their first bytes and not by file names, and tar archives in them.

The standard library reads gzip, bzip2 and xz. The programs zstd and lz4 read those formats; on a host without them the
image fails with a message that says what to install. tar archives are read with limits: tarfile would keep every entry,
and accept names of any length.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import shutil
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Iterator
from typing import IO, Any, cast

from remuda.agent.images import ImageError

_TOOLS = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x04\x22\x4d\x18", "lz4"))
_PIECE = 1 << 20
_ABOUT = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_LONGEST = 1 << 20

_BAD_ARCHIVE = (tarfile.TarError, ValueError, OverflowError, KeyError, RecursionError)
_DAMAGED_BYTES = (EOFError, zlib.error, lzma.LZMAError, OSError)
BROKEN = (*_BAD_ARCHIVE, *_DAMAGED_BYTES)  # errors for invalid archives and damaged data


def compression(file: IO[bytes]) -> str:
    """Return how the file is compressed; "" if it is not. The file stays at its beginning."""
    head = file.read(6)
    file.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"BZh"):
        return "bzip2"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    return next((tool for magic, tool in _TOOLS if head.startswith(magic)), "")


@contextlib.contextmanager
def plain(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the decompressed content of a file that is at its beginning."""
    kind = compression(file)
    if kind == "gzip":
        with gzip.GzipFile(fileobj=file) as reader:
            yield cast("IO[bytes]", reader)
    elif kind == "bzip2":
        with bz2.BZ2File(file) as reader:
            yield cast("IO[bytes]", reader)
    elif kind == "xz":
        with lzma.LZMAFile(file) as reader:
            yield cast("IO[bytes]", reader)
    elif kind:
        with _through(kind, file) as output:
            yield output
    else:
        yield file


@contextlib.contextmanager
def _through(tool: str, file: IO[bytes]) -> Iterator[IO[bytes]]:
    program = shutil.which(tool)
    if program is None:
        raise ImageError(f"it is compressed with {tool}, which is not installed on this host")
    process = subprocess.Popen(  # noqa: S603 - a program of the host, without arguments from outside
        [program, "-d", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    feeder = threading.Thread(target=_feed, args=(file, process.stdin), name=f"{tool}-input", daemon=True)
    feeder.start()
    try:
        yield process.stdout
        if process.stdout.read(1):
            raise ImageError(f"{tool} gave more than was read")
        if process.wait(60) != 0:
            raise ImageError(f"{tool} could not read it")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        feeder.join()


def _feed(file: IO[bytes], pipe: IO[bytes]) -> None:
    try:
        while piece := file.read(_PIECE):
            pipe.write(piece)
    except OSError:
        pass  # the program has ended; its code says why
    finally:
        with contextlib.suppress(OSError):
            pipe.close()


# -- tar archives


class _Entry(tarfile.TarInfo):
    def _proc_member(self, archive: Any) -> Any:
        if self.type in _ABOUT and self.size > _LONGEST:
            raise tarfile.ReadError("a name or attribute of more than a megabyte")
        return super()._proc_member(archive)  # type: ignore[misc]


@contextlib.contextmanager
def tar_entries(file: Any) -> Iterator[Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]]:
    """Yield the entries one after the other, each with its content if it is a file. Read the content before the next
    entry."""
    with tarfile.open(fileobj=file, mode="r|", tarinfo=_Entry) as archive:
        yield _entries(archive)


def _entries(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    while (entry := archive.next()) is not None:
        yield entry, archive.extractfile(entry) if entry.isfile() else None
        archive.members = []  # type: ignore[attr-defined]


@contextlib.contextmanager
def tar_archive(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """Return the archive with random access to its entries."""
    with tarfile.open(fileobj=file, mode="r:", tarinfo=_Entry) as archive:
        yield archive
