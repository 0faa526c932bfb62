"""Responses with a file: streamed in pieces, whole or the range that was asked for."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from io import FileIO

from remuda.kube.web import Request, Response, Result, Sink, Stream, header_block, text

BINARY = ("Content-Type", "application/octet-stream")

_PIECE = 256 * 1024
_RANGE = re.compile(r"bytes=(?:(?P<first>\d{1,18})-(?P<last>\d{1,18})?|-(?P<suffix>\d{1,18}))", re.ASCII)


def streamed(request: Request, descriptor: int, tag: str) -> Result:
    """A file, or the part of it that is asked for, without ever holding it in memory. Closes the descriptor."""
    headers = [BINARY, ("ETag", tag), ("Accept-Ranges", "bytes")]
    if request.method == "HEAD" or request.header(b"if-none-match") == tag:
        os.close(descriptor)
        return Response(200 if request.method == "HEAD" else 304, b"", header_block(headers))
    size = os.fstat(descriptor).st_size
    part = _part(request, tag, size)
    if part is not None and not part:
        os.close(descriptor)
        return Response(416, b"", header_block([("Content-Range", f"bytes */{size}")]))
    file = os.fdopen(descriptor, "rb", buffering=0)
    if part is None:
        return Stream(_produce(file, range(size)), header_block(headers))
    headers.append(("Content-Range", f"bytes {part[0]}-{part[-1]}/{size}"))
    return Stream(_produce(file, part), header_block(headers), status=206)


def _part(request: Request, tag: str, size: int) -> range | None:
    """Return the requested range of bytes; None for the whole file, also if the Range header is not understood."""
    found = _RANGE.fullmatch(request.header(b"range"))
    if found is None or request.header(b"if-range") not in ("", tag):
        return None
    if found["suffix"] is not None:
        return range(max(0, size - int(found["suffix"])), size)
    return range(int(found["first"]), min(size, int(found["last"]) + 1) if found["last"] else size)


def _produce(file: FileIO, part: range) -> Callable[[Sink], Awaitable[None]]:
    async def produce(sink: Sink) -> None:
        """Yield the file in pieces, as fast as the client reads them."""
        at = part.start
        with file:
            while at < part.stop:
                piece = await asyncio.to_thread(os.pread, file.fileno(), min(_PIECE, part.stop - at), at)
                if not piece:
                    raise OSError("the file was truncated while it was being sent")
                at += len(piece)
                sink.write(piece)
                await sink.drain()

    return produce


def missing() -> Response:
    return text(404, "file not found\n")
