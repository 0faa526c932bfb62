"""Server side of tunnels: admission of clients, and one session per tunnel on the event loop.

`TunnelServer.admit` decides before the connection is upgraded: 400 for a request that is not a WebSocket or an
authorizer that fails, 401 in upstream's words for a client that is not authorized, and 503 with a random Retry-After
when too many clients arrive at once. An admitted session takes over the connection, as a transport, from the HTTP
server that has accepted it. A session never waits for the reader of a stream, and writes no more than its transport
accepts, so that control messages go first as soon as there is room.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, cast

from remuda.tunnel import websocket
from remuda.tunnel.allow import NOTHING, Allow
from remuda.tunnel.client import CONFIRMS
from remuda.tunnel.handshake import HandshakeError, accepted_headers
from remuda.tunnel.mux import Mux, Timing, TunnelLost
from remuda.tunnel.protocol import ProtocolError
from remuda.tunnel.server_streams import answer
from remuda.tunnel.session_table import Key, Sessions
from remuda.tunnel.streams import Stream, StreamLimits

try:
    # aiohttp's implementation in C takes a fortieth of the time of ours, but may not be built.
    from aiohttp._websocket.mask import _websocket_mask_cython as unmask  # type: ignore[import-not-found]
except ImportError:
    from remuda.tunnel.websocket import apply_mask as unmask

log = logging.getLogger(__name__)

_BATCH = 128 * 1024  # bytes of one write
_HIGH_WATER = 256 * 1024  # bytes in the transport's buffer: a control message waits behind no more than that
_CLOSE_SECONDS = 5.0  # time for the last bytes to be sent


class TunnelRequest(NamedTuple):
    """Request for a tunnel; header names in lower case."""

    method: str
    headers: Mapping[str, str]
    address: str
    certificate: bytes | None = None  # the client's verified certificate (DER)


class RefusalResponse(NamedTuple):
    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()


class Admission(NamedTuple):
    """Admitted request. `headers` go into the 101 response; `accept` takes over the connection, given the bytes that
    the client has already sent."""

    headers: tuple[tuple[str, str], ...]
    accept: Callable[[asyncio.Transport, bytes], asyncio.Protocol]


Authorize = Callable[[TunnelRequest], Awaitable["Key | None"]]
"""Return the key of the tunnel, or None to deny it. The text of a ValueError is sent to the client."""


class AcceptRate:
    """Rate limit for new tunnels: so many per second, and a burst. A rejected client gets a random Retry-After, within
    the time it takes to serve those that were rejected before it."""

    def __init__(self, per_second: float = 200.0, at_once: int = 200) -> None:
        self._rate = per_second
        self._most = float(at_once)
        self._left = self._most
        self._rejected = 0.0
        self._at = -math.inf

    def wait(self, now: float, chance: Callable[[], float] = random.random) -> int:
        """Return 0 to admit the client, else the seconds after which it may retry."""
        # The bound makes the first call finite, for which the time of the last call is minus infinity.
        passed = min(now - self._at, self._most / self._rate + 60.0)
        self._at = now
        self._left = min(self._most, self._left + passed * self._rate)
        self._rejected = max(0.0, self._rejected - passed * self._rate)
        if self._left >= 1:
            self._left -= 1
            return 0
        self._rejected += 1
        return 1 + int(chance() * min(60.0, 1.0 + self._rejected / self._rate))


class TunnelServer:
    """Server for tunnels.

    `allow`: the addresses that clients may dial through this end. `refused` is called for every other address, with the
    key of the tunnel, the client's address and the target.
    """

    def __init__(
        self,
        authorize: Authorize,
        sessions: Sessions,
        *,
        allow: Allow = NOTHING,
        refused: Callable[[Key, str, str], None] = lambda key, address, what: None,
        timing: Timing = Timing(),  # noqa: B008
        limits: StreamLimits = StreamLimits(),  # noqa: B008
        rate: AcceptRate | None = None,
    ) -> None:
        self.sessions = sessions
        self.timing = timing
        self.limits = limits
        self.allow = allow
        self.refused = refused
        self._authorize = authorize
        self._rate = rate or AcceptRate()

    async def admit(self, asking: TunnelRequest) -> RefusalResponse | Admission:
        try:
            key = await self._authorize(asking)
        except ValueError as error:
            return RefusalResponse(400, str(error))
        if key is None:
            return RefusalResponse(401, "failed authentication")
        # After authorization: a flood of unauthorized clients must not use up the rate of authorized ones.
        wait = self._rate.wait(asyncio.get_running_loop().time())
        if wait:
            return RefusalResponse(503, "too many new tunnels; retry later", (("Retry-After", str(wait)),))
        try:
            headers = accepted_headers(asking.method, asking.headers)
        except HandshakeError as error:
            return RefusalResponse(400, str(error))
        confirms = asking.headers.get(CONFIRMS[0].lower()) == CONFIRMS[1]

        def accept(transport: asyncio.Transport, rest: bytes) -> asyncio.Protocol:
            session = ServerSession(self, key, asking.address, confirms)
            session.begin(transport, rest)
            return session

        return Admission(tuple(headers), accept)


class ServerSession(asyncio.Protocol):
    """One tunnel, on the event loop on which it was created."""

    def __init__(self, server: TunnelServer, key: Key, address: str, confirms: bool) -> None:
        self.key = key
        self.address = address
        self.confirms = confirms  # whether the client confirms each stream it has connected
        self._sessions = server.sessions
        self._allow = server.allow
        self._refused = server.refused
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._frames = websocket.Frames(mask=False, unmask=unmask)
        self._pump_due = False
        self._full = False
        self._reading = True
        self._buffered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.mux = Mux(
            client=False,
            now=self._loop.time(),
            wanted=self._on_connect_request,
            output=self._has_output,
            timing=server.timing,
            limits=server.limits,
            name=str(key),
        )

    def begin(self, transport: asyncio.Transport, rest: bytes) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._timer = self._loop.call_later(self.mux.timing.ping_every, self._tick)
        # Register before the first bytes are processed: they may end the session, which removes it from the table.
        self._sessions.add(self)
        if rest:
            self.data_received(rest)

    def end(self, reason: str, code: int = websocket.GOING_AWAY) -> None:
        """End the session, once. Users of its streams get the reason."""
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        # Close the streams first: `remove` adds the counters of the mux to those of the key.
        self.mux.lost(reason)
        self._sessions.remove(self, reason)
        if self._full:
            self._transport.abort()  # a frame is half sent and may never be finished: no close frame fits
        elif not self._transport.is_closing():
            close = self._frames.frame(websocket.CLOSE, websocket.close_payload(code, reason))
            self._transport.write(b"".join(close))
            self._transport.close()
            self._loop.call_later(min(self.mux.timing.ping_every, _CLOSE_SECONDS), self._transport.abort)

    def is_stalled(self, now: float) -> bool:
        """Return whether the session has ended or is overdue with a sign of life, so that others are preferred."""
        return self.mux.silent_for(now) > 1.5 * self.mux.timing.ping_every or self._ended

    # The transport's side

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        try:
            for opcode, payload in self._frames.feed(data):
                self.mux.receive(opcode, payload, now)
                if self._ended:
                    return
        except TunnelLost as error:
            self.end(str(error), websocket.NORMAL)
        except ProtocolError as error:
            self.end(f"the other end broke the protocol: {error}", websocket.PROTOCOL_ERROR)
        except websocket.WebSocketError as error:
            self.end(f"the other end broke the protocol: {error}", error.code)
        except Exception:
            log.exception("tunnel of %s failed", self.key)
            self.end("internal error at this end", 1011)
        self._throttle_reading()

    def _throttle_reading(self) -> None:
        """Pause reading until the time that the mux asks for."""
        wait = self.mux.read_at - self._loop.time()
        if wait > 0 and self._reading and not self._ended:
            self._reading = False
            self._transport.pause_reading()
            self._loop.call_later(wait, self._resume_reading)

    def _resume_reading(self) -> None:
        self._reading = True
        if not self._ended:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        self.end("the other end closed the connection")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.end(f"the connection failed: {error}" if error else "the other end closed the connection")

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.mux.progressed(self._loop.time())
        self._pump()

    # Output

    def _has_output(self) -> None:
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump_soon)

    def _pump_soon(self) -> None:
        self._pump_due = False
        self._pump()

    def _pump(self) -> None:
        if self._full or self._ended:
            return
        batch = self.mux.batch(self._frames, _BATCH)
        if batch:
            self._transport.write(batch)
        if self.mux.has_output and not self._full:
            self._has_output()  # in the next iteration of the loop, so that others can run

    def _tick(self) -> None:
        now = self._loop.time()
        buffered = self._transport.get_write_buffer_size()
        # asyncio calls `resume_writing` only below its low-water mark. A slow peer that has taken some bytes is not
        # dead.
        if buffered < self._buffered:
            self.mux.progressed(now)
        self._buffered = buffered
        try:
            due = self.mux.tick(now, blocked=self._full)
        except TunnelLost as error:
            self.end(str(error))
            self._transport.abort()
            return
        self._timer = self._loop.call_at(due, self._tick)
        self._throttle_reading()

    def _on_connect_request(self, stream: Stream) -> None:
        if not answer(stream, self._allow):
            # The client chooses these texts, and they are written to the audit log: bound their length.
            self._refused(self.key, self.address, f"{stream.network[:8]}/{stream.address[:256]}")
