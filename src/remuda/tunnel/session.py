"""Session of a tunnel on a connected socket, with the standard library alone: one thread moves all bytes.

One thread, because only one thread at a time may use an OpenSSL connection, and because Python runs one thread at a
time anyway: a single loop over non-blocking sockets is faster and smaller than several threads that wait for each
other. Only dialling can block, and has its own threads. Reading and writing do not wait for each other, so a local
service that does not read, or a full tunnel, delays no other stream.
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
from remuda.tunnel.dialer import Dialer, describe_error
from remuda.tunnel.local import READ, WRITE, Local
from remuda.tunnel.mux import Mux, Timing, TunnelLost
from remuda.tunnel.protocol import Buffer, ProtocolError
from remuda.tunnel.streams import Stream, StreamLimits

_RECEIVE = 256 * 1024  # most bytes read from the tunnel at once
_BATCH = 64 * 1024  # bytes of one write, so that a control message never waits for more than that here
_PER_TURN = 512 * 1024  # bytes written before the next read
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_UNSENT_IN_KERNEL = 128 * 1024

Wire = Union[socket.socket, ssl.SSLSocket]  # noqa: UP007  # Python 3.9


class Session:
    """Session of a client. `rest`: the bytes that followed the handshake response."""

    def __init__(
        self,
        wire: Wire,
        *,
        rest: bytes = b"",
        allow: Allow = NOTHING,
        timing: Timing = Timing(),  # noqa: B008
        limits: StreamLimits = StreamLimits(),  # noqa: B008
        on_tick: Callable[[], None] | None = None,
    ) -> None:
        self._wire = wire
        self._rest = rest
        self._allow = allow
        self._on_tick = on_tick
        self._frames = websocket.Frames(mask=True)
        self.mux = Mux(client=True, now=time.monotonic(), wanted=self._on_connect_request, timing=timing, limits=limits)
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = os.pipe()
        self._dialer = Dialer(self._on_dialled)
        self._dial_results: deque[tuple[Stream, socket.socket | None, str]] = deque()
        self._locals: set[Local] = set()
        self._buffer = memoryview(bytearray(_RECEIVE))
        self._batch = bytearray()
        self._unsent_batch: memoryview | None = None  # the part of the batch that is not sent yet
        self._wire_interest = READ
        self._more_to_read = False  # OpenSSL may hold data that the selector does not see
        self._due = 0.0
        self._stopping = ""
        self._ended = False

    def run(self) -> str:
        """Run until the tunnel is lost or stopped; return the reason."""
        for descriptor in (self._wake, self._waker):
            os.set_blocking(descriptor, False)
        prepare(self._wire)
        self._wire.setblocking(False)
        self._selector.register(self._wire, READ, self._on_wire)
        self._selector.register(self._wake, READ, self._on_wake)
        reason = ""
        try:
            # The handshake may have read the first frames already. The selector does not report bytes that were read.
            self._process(self._rest, time.monotonic())
            while not self._stopping:
                self._run_once()
            reason = self._stopping
            self._send_close(websocket.GOING_AWAY, reason)
        except TunnelLost as error:
            reason = str(error)
        except (ProtocolError, websocket.WebSocketError) as error:
            reason = f"the other end broke the protocol: {error}"
            self._send_close(websocket.PROTOCOL_ERROR, str(error))
        except OSError as error:
            reason = f"the connection failed: {describe_error(error)}"
        finally:
            self._end(reason or "internal error at this end")
        return reason

    def stop(self, reason: str) -> None:
        """End the session; may be called from any thread, any number of times."""
        self._stopping = self._stopping or reason
        self._wake_up()

    # The loop

    def _run_once(self) -> None:
        now, read_at = time.monotonic(), self.mux.read_at
        until = min(self._due, read_at) if self._more_to_read or read_at > now else self._due
        for key, events in self._selector.select(max(0.0, until - now)):
            key.data(events)
        now = time.monotonic()
        if self._more_to_read and now >= read_at:
            self._receive(now)
        if now >= self._due:
            self._due = self.mux.tick(now, blocked=self._unsent_batch is not None)
            if self._on_tick is not None:
                self._on_tick()
        self._send(now)

    def _on_wire(self, events: int) -> None:
        if events & READ:
            self._more_to_read = True

    def _on_wake(self, _: int) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        while self._dial_results:
            self._on_connected(*self._dial_results.popleft())

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
            self._more_to_read = False
        except ssl.SSLEOFError:
            ended = True
        if filled:
            self._process(self._buffer[:filled], now)
        if ended:
            raise TunnelLost("the other end closed the connection")

    def _process(self, data: Buffer, now: float) -> None:
        for opcode, payload in self._frames.feed(data):
            self.mux.receive(opcode, payload, now)

    def _send(self, now: float) -> None:
        budget = _PER_TURN
        while budget > 0:
            if self._unsent_batch is None:
                size = self.mux.batch_into(self._batch, self._frames, _BATCH)
                if not size:
                    self._watch_wire(READ, now)
                    return
                self._unsent_batch = memoryview(self._batch)[:size]
            try:
                count = self._wire.send(self._unsent_batch)
            except _NOT_NOW:
                break
            self.mux.progressed(now)
            budget -= count
            self._unsent_batch = self._unsent_batch[count:] if count < len(self._unsent_batch) else None
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

    # Streams that the other end opens

    def _on_connect_request(self, stream: Stream) -> None:
        try:
            target = self._allow.target(stream.network, stream.address)
        except ValueError as error:
            stream.fail(f"connect not allowed: {error}")
            return
        if target is None:
            stream.fail(f"connect not allowed: {stream.network}/{stream.address}")
        else:
            self._dialer.dial(stream, target)

    def _on_dialled(self, stream: Stream, made: socket.socket | None, reason: str) -> None:
        """Take the result of a dial; called in a thread of the dialer."""
        # The session may end while a dial runs. Nobody else would close the socket then.
        if self._ended:
            if made is not None:
                made.close()
            return
        self._dial_results.append((stream, made, reason))
        self._wake_up()

    def _on_connected(self, stream: Stream, made: socket.socket | None, reason: str) -> None:
        if made is None:
            stream.fail(f"dial {stream.network} {stream.address}: {reason}")
        elif stream.is_gone:
            made.close()
        else:
            # Data may arrive while the dial runs. The stream has buffered it, and `flush` passes it on.
            local = Local(self._selector, stream, made, self._locals.discard)
            self._locals.add(local)
            stream.confirm()
            stream.consumer = local
            stream.flush()

    def _wake_up(self) -> None:
        try:
            os.write(self._waker, b"\0")
        except OSError:
            pass  # the pipe is full: the loop is awake; it is closed: the session has ended

    # The end

    def _send_close(self, code: int, reason: str) -> None:
        """Send a close frame if that does not block and does not break another frame."""
        if self._unsent_batch is None:
            try:
                self._wire.send(b"".join(self._frames.frame(websocket.CLOSE, websocket.close_payload(code, reason))))
            except OSError:
                pass

    def _end(self, reason: str) -> None:
        # Set this first: a dial that finishes from now on closes its own socket, and all earlier results are closed
        # below.
        self._ended = True
        self._dialer.drop()
        self.mux.lost(reason)
        for local in list(self._locals):
            local.ended(reason)
        while self._dial_results:
            made = self._dial_results.popleft()[1]
            if made is not None:
                made.close()
        self._selector.close()
        for descriptor in (self._wake, self._waker):
            os.close(descriptor)
        self._wire.close()


def prepare(wire: Wire) -> None:
    """Set the options of the tunnel's socket: the kernel detects a dead peer too, and buffers little unsent data,
    because control messages wait behind it."""
    if wire.family == socket.AF_UNIX:
        return
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Keep-alive probes give up after 15 + 3 * 5 s, and unacknowledged data after 30 s: the same 30 s as in `Timing`.
    for name, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
        ("TCP_NOTSENT_LOWAT", _UNSENT_IN_KERNEL),
    ):
        if hasattr(socket, name):
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
