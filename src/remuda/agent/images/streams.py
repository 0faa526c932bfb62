"""Compressed streams, known by how they begin and not by what they are called.

gzip, bzip2 and xz are read by the standard library. zstd and lz4 are read by the programs of that name; on a host
without them the image is refused in words that say what to install.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import shutil
import subprocess
import threading
import zlib
from collections.abc import Iterator
from typing import IO, cast

from remuda.agent.images.errors import ImageError

_TOOLS = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x04\x22\x4d\x18", "lz4"))
_PIECE = 1 << 20

BROKEN = (EOFError, zlib.error, lzma.LZMAError, OSError)  # what a reader raises at damaged bytes


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
    """The content of a file, which must be at its beginning, as it was before it was compressed."""
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
