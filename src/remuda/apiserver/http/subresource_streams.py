"""Answers of subresources that are a stream of bytes (logs)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from remuda.apiserver.http.answers import audit_header
from remuda.kube.web import Request, Sink, Stream, header_block

_HEADERS = header_block([("Cache-Control", "no-cache, private"), ("Content-Type", "text/plain")])


async def log_stream(request: Request, chunks: AsyncIterator[bytes]) -> Stream:
    """Waits for the first chunk, so that what goes wrong before it is an error and not an empty log."""
    try:
        first = await anext(chunks)
    except StopAsyncIteration:
        first = b""

    async def produce(sink: Sink) -> None:
        sink.write(first)
        async for chunk in chunks:
            sink.write(chunk)
            await sink.drain()

    return Stream(produce, audit_header(request) + _HEADERS)
