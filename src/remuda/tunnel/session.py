"""A tunnel's session on a connected socket, on the standard library alone: one thread moves all bytes.

One thread, because an OpenSSL connection may be used by one at a time, and because threads of Python take turns anyway:
a single loop over sockets that never block is faster than several that wait for each other, and smaller. What may
block, dialling, has threads of its own. The session reads while it cannot write and writes while it cannot read; a
local service that does not read, or the tunnel's own socket, costs the others nothing.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Union

from remuda.tunnel import websocket
from remuda.tunnel.allow import NOTHING, Allow
from remuda.tunnel.dialer import Dialer, in_words
from remuda.tunnel.local import READ, WRITE, Local
from remuda.tunnel.mux import Mux, Timing, TunnelLost
from remuda.tunnel.protocol import Buffer, ProtocolError
from remuda.tunnel.streams import Limits, Stream

_RECEIVE = 256 * 1024  # at most at once from the tunnel
_BATCH = 64 * 1024  # joined into one write, so that an urgent message never waits for more than that here
_PER_TURN = 512 * 1024  # written before reading gets its turn
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_UNSENT_IN_KERNEL = 128 * 1024

Wire = Union[socket.socket, ssl.SSLSocket]  # noqa: UP007  # Python 3.9


class Session:
    """`rest` is what came behind the handshake's answer."""

    def __init__(
        self,
        wire: Wire,
        *,
        rest: bytes = b"",
        allow: Allow = NOTHING,
        timing: Timing = Timing(),  # noqa: B008
        limits: Limits = Limits(),  # noqa: B008
        turned: Callable[[], None] | None = None,
    ) -> None:
        self._wire = wire
        self._rest = rest
        self._allow = allow
        self._turned = turned
        self._frames = websocket.Frames(mask=True)
        self.mux = Mux(client=True, now=time.monotonic(), wanted=self._wanted, timing=timing, limits=limits)
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = os.pipe()
        self._dialer = Dialer(self._dialled)
        self._found: deque[tuple[Stream, socket.socket | None, str]] = deque()
        self._locals: set[Local] = set()
        self._buffer = memoryview(bytearray(_RECEIVE))
        self._batch = bytearray()
        self._out: memoryview | None = None  # of the batch, what is not sent yet
        self._wire_interest = READ
        self._more = False  # to be read, of which the selector knows nothing
        self._due = 0.0
        self._stopping = ""
        self._over = False

    def run(self) -> str:
        """Until the tunnel is lost, or stopped; says why."""
        for descriptor in (self._wake, self._waker):
            os.set_blocking(descriptor, False)
        prepare(self._wire)
        self._wire.setblocking(False)
        self._selector.register(self._wire, READ, self._on_wire)
        self._selector.register(self._wake, READ, self._on_wake)
        reason = ""
        try:
            self._take_in(self._rest, time.monotonic())
            while not self._stopping:
                self._turn()
            reason = self._stopping
            self._say_goodbye(websocket.GOING_AWAY, reason)
        except TunnelLost as error:
            reason = str(error)
        except (ProtocolError, websocket.WebSocketError) as error:
            reason = f"the other end broke the protocol: {error}"
            self._say_goodbye(websocket.PROTOCOL_ERROR, str(error))
        except OSError as error:
            reason = f"the connection failed: {in_words(error)}"
        finally:
            self._end(reason or "internal error at this end")
        return reason

    def stop(self, reason: str) -> None:
        """From any thread, any number of times."""
        self._stopping = self._stopping or reason
        self._nudge()

    # One turn

    def _turn(self) -> None:
        now, read_at = time.monotonic(), self.mux.read_at
        until = min(self._due, read_at) if self._more or read_at > now else self._due
        for key, events in self._selector.select(max(0.0, until - now)):
            key.data(events)
        now = time.monotonic()
        if self._more and now >= read_at:
            self._receive(now)
        if now >= self._due:
            self._due = self.mux.tick(now, blocked=self._out is not None)
            if self._turned is not None:
                self._turned()
        self._send(now)

    def _on_wire(self, events: int) -> None:
        if events & READ:
            self._more = True

    def _on_wake(self, _: int) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        while self._found:
            self._connected(*self._found.popleft())

    def _receive(self, now: float) -> None:
        filled, ended = 0, False
        try:
            while filled < _RECEIVE:
                count = self._wire.recv_into(self._buffer[filled:])
                if not count:
                    ended = True
                    break
                filled += count
        except _NOT_NOW:
            self._more = False
        except ssl.SSLEOFError:
            ended = True
        if filled:
            self._take_in(self._buffer[:filled], now)
        if ended:
            raise TunnelLost("the other end closed the connection")

    def _take_in(self, data: Buffer, now: float) -> None:
        for opcode, payload in self._frames.feed(data):
            self.mux.receive(opcode, payload, now)

    def _send(self, now: float) -> None:
        budget = _PER_TURN
        while budget > 0:
            if self._out is None:
                size = self.mux.batch_into(self._batch, self._frames, _BATCH)
                if not size:
                    self._watch_wire(READ, now)
                    return
                self._out = memoryview(self._batch)[:size]
            try:
                count = self._wire.send(self._out)
            except _NOT_NOW:
                break
            self.mux.progressed(now)
            budget -= count
            self._out = self._out[count:] if count < len(self._out) else None
        self._watch_wire(READ | WRITE, now)

    def _watch_wire(self, interest: int, now: float) -> None:
        if self.mux.read_at > now:
            interest &= ~READ
        if interest == self._wire_interest:
            return
        if not interest:
            self._selector.unregister(self._wire)
        elif not self._wire_interest:
            self._selector.register(self._wire, interest, self._on_wire)
        else:
            self._selector.modify(self._wire, interest, self._on_wire)
        self._wire_interest = interest

    # Streams the other end asks for

    def _wanted(self, stream: Stream) -> None:
        try:
            target = self._allow.target(stream.network, stream.address)
        except ValueError as error:
            stream.fail(f"connect not allowed: {error}")
            return
        if target is None:
            stream.fail(f"connect not allowed: {stream.network}/{stream.address}")
        else:
            self._dialer.dial(stream, target)

    def _dialled(self, stream: Stream, made: socket.socket | None, reason: str) -> None:
        """In a thread of the dialer."""
        if self._over:
            if made is not None:
                made.close()
            return
        self._found.append((stream, made, reason))
        self._nudge()

    def _connected(self, stream: Stream, made: socket.socket | None, reason: str) -> None:
        if made is None:
            stream.fail(f"dial {stream.network} {stream.address}: {reason}")
        elif stream.is_gone:
            made.close()
        else:
            local = Local(self._selector, stream, made, self._locals.discard)
            self._locals.add(local)
            stream.confirm()
            stream.consumer = local
            stream.flush()

    def _nudge(self) -> None:
        try:
            os.write(self._waker, b"\0")
        except OSError:
            pass  # full: it is awake; closed: it is over

    # The end

    def _say_goodbye(self, code: int, reason: str) -> None:
        """If it can be said at once, and not into the middle of a frame."""
        if self._out is None:
            try:
                self._wire.send(b"".join(self._frames.frame(websocket.CLOSE, websocket.close_payload(code, reason))))
            except OSError:
                pass

    def _end(self, reason: str) -> None:
        self._over = True
        self._dialer.drop()
        self.mux.lost(reason)
        for local in list(self._locals):
            local.ended(reason)
        while self._found:
            made = self._found.popleft()[1]
            if made is not None:
                made.close()
        self._selector.close()
        for descriptor in (self._wake, self._waker):
            os.close(descriptor)
        self._wire.close()


def prepare(wire: Wire) -> None:
    """An end that is gone without a word is noticed by the kernel too, and no more than a moment's worth of data waits
    there: what is urgent would wait behind it."""
    if wire.family == socket.AF_UNIX:
        return
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
        ("TCP_NOTSENT_LOWAT", _UNSENT_IN_KERNEL),
    ):
        if hasattr(socket, name):
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
