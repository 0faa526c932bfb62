"""One HTTP/1.1 connection: bytes in, requests to the handler in order, answers out.

What must stay true:
- Requests of one connection are answered one after the other; what a client sends ahead is held back in the kernel, not
  here (reading pauses while a request waits its turn).
- A handler starts when the head is complete, before the body is read, so that a client without permission cannot make
  the server hold its body. A body is held only while a handler waits for it, up to the limit it named.
- No timers of its own: the listener sweeps all connections about once a second and calls `expire`, so ten thousand idle
  watches cost one short loop.
- When the client goes away the handler is cancelled. Whatever bytes arrive, the worst they get is a 400 and a closed
  connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from remuda.apiserver.http.request_parser import Malformed, RequestReader, UnknownMethod
from remuda.apiserver.http.stream import GONE, ChunkSink, send
from remuda.kube.errors import entity_too_large
from remuda.kube.web import (
    MAX_BODY,
    STATUS_LINES,
    TEXT_HEADERS,
    CutShort,
    Request,
    Response,
    Result,
    Stream,
    Upgrade,
)

if TYPE_CHECKING:
    from remuda.apiserver.http.interfaces import ConnectionOwner

log = logging.getLogger(__name__)

NEVER = float("inf")

# Meaning of a connection's deadline when it passes.
IDLE, HEAD, BODY, HANDLING, STREAMING, LINGERING = range(6)

# unsent bytes before a stream must wait: for a thousand watchers that do not read, these are 128 MB
_HIGH_WATER = 128 * 1024
# up to this size head and body are joined into one write; above, a copy costs more than a second write
_JOIN_BELOW = 64 * 1024


class Connection(asyncio.Protocol):
    __slots__ = (
        "_active",
        "_address",
        "_body_limit",
        "_body_waiter",
        "_certificate",
        "_closing",
        "_owner",
        "_phase",
        "_queue",
        "_reader",
        "_reading",
        "_reading_paused",
        "_sink",
        "_takeover",
        "_task",
        "_transport",
        "_writing_paused",
        "deadline",
        "write_deadline",
    )

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport = cast(asyncio.Transport, None)
        # The parser will refer to this object, so it is created in `connection_made`, which a failed handshake never
        # reaches.
        self._reader = cast(RequestReader, None)
        self._queue: deque[Request] = deque()
        self._active: Request | None = None  # the request being answered
        self._reading: Request | None = None  # the request whose body is arriving
        self._body_limit = 0
        self._body_waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._sink: ChunkSink | None = None
        self._takeover: asyncio.Protocol | None = None
        self._closing = False
        self._reading_paused = False
        self._writing_paused = False
        self._certificate: bytes | bool | None = False  # False: not yet looked up
        self._address = ""
        self._phase = IDLE
        self.deadline = NEVER
        self.write_deadline = NEVER

    # -- callbacks of the transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._owner.opened(self):
            self._closing = True
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._reader = RequestReader(self, self._owner.limits)
        self._wait_idle()

    def data_received(self, data: bytes) -> None:
        if self._takeover is not None:
            self._takeover.data_received(data)
            return
        if self._closing:
            return  # discards the rest of a rejected body
        if self._active is not None and self._active.leftover is not None:
            self._hold_more_back(self._active, data)
            return
        begins = not self._reader.in_head and self._reading is None and not self._queue
        try:
            leftover = self._reader.feed(data)
        except UnknownMethod:
            unheard_of = _METHOD.match(data) if begins and not self._queue else None
            if unheard_of is None or self._reading is not None:
                self._refuse(400)
            else:
                self._start_over(_UNOFFERED + data[unheard_of.end() :])
            return
        except Malformed as malformed:
            self._refuse(malformed.status)
            return
        if leftover is not None:
            self._hold_back(leftover)
        self._pump()

    def eof_received(self) -> bool:
        if self._takeover is not None:
            return bool(self._takeover.eof_received())
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.closed(self)
        self._closing = True
        self.deadline = self.write_deadline = NEVER
        self._queue.clear()
        if self._takeover is not None:
            self._takeover.connection_lost(error)
        if self._sink is not None:
            self._sink.resume()
        self._cancel(self._task)
        # These objects refer to this connection. Without breaking the cycle, each lost connection stays until the cycle
        # collector runs, which depends on the number of allocations, not on the memory in use.
        if self._reader is not None:
            self._reader.close()
        self._sink = self._active = self._reading = self._task = self._takeover = None
        self._transport = GONE

    def pause_writing(self) -> None:
        self._writing_paused = True
        self.write_deadline = self._owner.loop.time() + self._owner.limits.write_timeout
        if self._takeover is not None:
            self.write_deadline = NEVER
            self._takeover.pause_writing()
        elif self._sink is not None:
            self._sink.pause()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.write_deadline = NEVER
        if self._takeover is not None:
            self._takeover.resume_writing()
        elif self._sink is not None:
            self._sink.resume()
        else:
            self._pump()

    # -- callbacks of the parser ---------------------------------------------------------------------------------

    def head_begins(self) -> None:
        if self._active is None and self._phase == IDLE:
            self._phase = HEAD
            self.deadline = self._owner.loop.time() + self._owner.limits.head_timeout

    def head_complete(self, request: Request) -> None:
        if len(self._queue) >= self._owner.limits.pipelined:
            raise Malformed(400)
        self._reading = request
        self._queue.append(request)

    def body_arrives(self, data: bytes) -> None:
        request = self._reading
        if request is None:
            return
        request.received += len(data)
        wanted = request is self._active or request in self._queue
        if wanted and request.received <= MAX_BODY:
            request.chunks.append(data)
        if wanted and request.received > self._body_limit:
            self._wake_body()

    def message_complete(self) -> None:
        request = self._reading
        self._reading = None
        if request is None:
            return
        request.body_complete = True
        if request is self._active:
            self._wake_body()
        elif self._active is None and not self._queue:
            self._wait_idle()  # the end of a body that no handler reads

    # -- requests ------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start the next request if it may start, then decide whether to continue reading."""
        queue = self._queue
        while queue and self._active is None and not self._closing and not self._writing_paused:
            self._start(queue.popleft())
        held_back = bool(queue)
        if held_back is not self._reading_paused and not self._closing:
            self._reading_paused = held_back
            if held_back:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _start(self, request: Request) -> None:
        self._active = request
        self._phase = HANDLING
        self.deadline = NEVER
        try:
            result = self._owner.handler(request)
        except Exception as error:
            result = self._owner.failed(request, error)
        if type(result) is Response:
            self._respond(request, result)
        elif isinstance(result, Stream | Upgrade):
            self._deliver(request, result)
        else:
            self.deadline = self._answered_by(request)
            awaited = cast(Awaitable[Result], result)
            self._task = self._owner.loop.create_task(self._finish(request, awaited))

    def _answered_by(self, request: Request) -> float:
        return NEVER if request.unhurried else self._owner.loop.time() + self._owner.limits.request_timeout

    async def _finish(self, request: Request, pending: Awaitable[Result]) -> None:
        try:
            result = await pending
        except Exception as error:
            result = self._owner.failed(request, error)
        self._task = None
        if self._active is request and not self._closing:
            self._deliver(request, result)
            self._pump()

    def _deliver(self, request: Request, result: Result) -> None:
        if isinstance(result, Response):
            self._respond(request, result)
        elif isinstance(result, Stream):
            self._start_stream(request, result)
        else:
            self._hand_over(request, result)

    def _respond(self, request: Request, response: Response) -> None:
        closes = self._must_close(request)
        body = response.body
        head = b"%b%bDate: %b\r\nContent-Length: %d\r\n%b\r\n" % (
            STATUS_LINES[response.status],
            response.headers,
            self._owner.date_header(),
            len(body),
            b"Connection: close\r\n" if closes else b"",
        )
        if request.method == "HEAD" or response.status == 304:
            self._transport.write(head)
        elif len(body) < _JOIN_BELOW:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            send(self._transport, body)
        self._answered(request, closes)

    def _must_close(self, request: Request) -> bool:
        """Return whether to close the connection, also if reading the rest of the body costs more than a new
        connection.
        """
        if not request.keep_alive or self._owner.draining:
            return True
        if request.body_complete:
            return False
        if request.content_length is None:
            return True
        return request.content_length - request.received > self._owner.limits.discarded_body

    def _answered(self, request: Request, closes: bool) -> None:
        self._active = None
        self._sink = None
        if closes:
            self._close_after_writing(linger=not request.body_complete)
        elif not request.body_complete and request.leftover is None:
            request.chunks.clear()
            self._phase = BODY
            self.deadline = self._owner.loop.time() + self._owner.limits.body_timeout
        else:
            self._wait_idle()
            if request.leftover is not None:
                self._start_over(request.leftover)

    def _wait_idle(self) -> None:
        self._phase = IDLE
        self.deadline = self._owner.loop.time() + self._owner.idle_timeout

    # -- bodies --------------------------------------------------------------------------------------------------

    async def read_body(self, request: Request, limit: int) -> bytes:
        limit = min(limit, MAX_BODY)
        if request.content_length is not None and request.content_length > limit:
            raise entity_too_large(limit)
        if not request.body_complete:
            await self._await_body(request, limit)
        if request.received > limit:
            request.chunks.clear()
            raise entity_too_large(limit)
        body = request.chunks[0] if len(request.chunks) == 1 else b"".join(request.chunks)
        request.chunks = [body]
        return body

    async def _await_body(self, request: Request, limit: int) -> None:
        if request.headers.get(b"expect", b"").lower() == b"100-continue" and not request.received:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.received > limit:
            return
        self._body_limit = limit
        self._body_waiter = self._owner.loop.create_future()
        self._phase = BODY
        self.deadline = self._owner.loop.time() + self._owner.limits.body_timeout
        try:
            await self._body_waiter
        finally:
            self._body_waiter = None
            if not self._closing:
                self._phase = HANDLING
                self.deadline = self._answered_by(request)

    def _wake_body(self) -> None:
        if self._body_waiter is not None and not self._body_waiter.done():
            self._body_waiter.set_result(None)

    # -- streams and upgrades ------------------------------------------------------------------------------------

    def _start_stream(self, request: Request, stream: Stream) -> None:
        closes = self._must_close(request) or request.http_1_0
        coding = b"" if request.http_1_0 else b"Transfer-Encoding: chunked\r\n"
        self._transport.write(
            b"%b%bDate: %b\r\n%b%b\r\n"
            % (
                STATUS_LINES[stream.status],
                stream.headers,
                self._owner.date_header(),
                coding,
                b"Connection: close\r\n" if closes else b"",
            )
        )
        if request.method == "HEAD":
            self._answered(request, True)
            return
        self._sink = ChunkSink(self._transport, chunked=not request.http_1_0)
        if self._writing_paused:
            self._sink.pause()
        self._phase = STREAMING
        self.deadline = self._owner.loop.time() + stream.ends_after if stream.ends_after else NEVER
        self._task = self._owner.loop.create_task(self._run_stream(request, stream, self._sink, closes))

    async def _run_stream(self, request: Request, stream: Stream, sink: ChunkSink, closes: bool) -> None:
        whole = True
        try:
            await stream.produce(sink)
        except asyncio.CancelledError:
            pass  # the client left, or `end_stream` ended this answer
        except CutShort as reason:
            whole = False
            log.info("the streamed response to %s %s was cut short: %s", request.method, request.path, reason)
        except Exception:
            whole = False
            log.exception("the response to %s %s failed while it was streamed", request.method, request.path)
        self._task = None
        if self._transport.is_closing() or self._active is not request:
            return
        if not whole:
            self._transport.abort()  # a truncated answer must not look complete
            return
        sink.finish()
        self._answered(request, closes or self._owner.draining)
        self._pump()

    def end_stream(self) -> None:
        """End the stream: it stops producing and sends its last chunk."""
        self.deadline = NEVER
        self._cancel(self._task)

    def _hold_back(self, rest: bytes) -> None:
        """Hold back bytes after an upgrade request: they belong to the handler that takes over the
        connection, if any.
        """
        request = self._queue[-1]
        request.leftover = rest
        request.body_complete = True

    def _hold_more_back(self, request: Request, data: bytes) -> None:
        """Hold back further bytes until the upgrade is decided."""
        request.leftover = (request.leftover or b"") + data
        if len(request.leftover) > self._owner.limits.head_bytes:
            self._transport.abort()

    def _start_over(self, rest: bytes) -> None:
        """Continue as HTTP with `rest`: an upgrade was declined, or the parser did not know the method."""
        self._reader.start_over()
        if rest:
            self._owner.loop.call_soon(self.data_received, rest)

    def _hand_over(self, request: Request, upgrade: Upgrade) -> None:
        if request.leftover is None:
            self._respond(request, Response(400, b"400 Bad Request: no upgrade was asked for", TEXT_HEADERS))
            return
        self.deadline = NEVER
        self._transport.write(b"%bConnection: Upgrade\r\n%b\r\n" % (STATUS_LINES[101], upgrade.headers))
        self._takeover = cast(asyncio.Protocol, upgrade.accept(self._transport, request.leftover))
        request.leftover = None
        self._phase = STREAMING

    # -- endings -------------------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Handle an expired deadline. The sweep calls this."""
        if self.write_deadline <= now or self._phase == LINGERING:
            self._transport.abort()
        elif self._phase == STREAMING:
            self.end_stream()
        elif self._phase == HANDLING:
            self._give_up()
        elif self._phase == BODY and self._active is not None:
            self._refuse(408)
        else:
            self._close_after_writing()

    def _give_up(self) -> None:
        request, task = self._active, self._task
        if request is None:
            return
        self._task = None
        request.keep_alive = False
        self._respond(request, self._owner.timed_out(request))
        self._cancel(task)

    def _cancel(self, task: asyncio.Task[None] | None) -> None:
        """Cancel the handler, but only after it has started: a coroutine that never runs never releases its
        resources.
        """
        if task is not None:
            self._owner.loop.call_soon(task.cancel)

    def drain(self) -> None:
        """Stop: close idle connections, end streams, and close after a request in progress is answered."""
        if self._transport.is_closing():
            return  # asyncio's TLS transports break when closed twice
        if self._takeover is not None:
            self._transport.close()
        elif self._sink is not None:
            self.end_stream()
        elif self._active is None:
            self._close_after_writing()

    @property
    def said_all(self) -> bool:
        """Return whether all data has been handed to the transport and no more will follow."""
        return (self._closing or self._transport.is_closing()) and not self._transport.get_write_buffer_size()

    def abort(self) -> None:
        self._transport.abort()

    def _refuse(self, status: int) -> None:
        """Answer an unparsable request, unless an earlier request is still being answered, and close."""
        self._queue.clear()
        if self._active is None or self._phase == BODY:
            line = STATUS_LINES[status]
            reason = line[9:-2]
            head = b"%b%bContent-Length: %d\r\nConnection: close\r\n\r\n"
            self._transport.write(head % (line, TEXT_HEADERS, len(reason)) + reason)
        self._close_after_writing(linger=True)
        self._cancel(self._task)

    def _close_after_writing(self, linger: bool = False) -> None:
        """Close after pending writes. Closing with unread input makes the kernel reset the connection, and the client
        may lose the answer. So further input is read and dropped for a moment.
        """
        self._closing = True
        if linger and not self._reading_paused:
            self._phase = LINGERING
            self.deadline = self._owner.loop.time() + self._owner.limits.linger
        else:
            self._transport.close()

    # -- peer ----------------------------------------------------------------------------------------------------

    @property
    def certificate(self) -> bytes | None:
        if isinstance(self._certificate, bool):
            tls = self._transport.get_extra_info("ssl_object")
            self._certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        return self._certificate

    @property
    def address(self) -> str:
        if not self._address:
            peer = self._transport.get_extra_info("peername")
            self._address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
        return self._address


# The parser accepts a fixed list of methods. Any other method is parsed as one that no path supports, so that it is
# rejected at the usual place: after authentication, with the path's own answer.
_METHOD = re.compile(rb"[A-Z][A-Z0-9_-]*(?= [/*h])")
_UNOFFERED = b"PROPFIND"
