"""The server's end of tunnels: who may open one, and each session on the event loop.

`Server.admit` answers a request before anything is switched: not a WebSocket or a broken authorizer 400, not authorised
401, in upstream's words, and 503 with a time to come back, different for everyone, when more arrive than can be
served. What it admits takes over the connection from whatever HTTP server has accepted it: a transport, and from then
on a protocol. A session never waits for a stream's reader, and never writes more than its transport takes: what is
urgent goes first whenever there is room again.
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
from remuda.tunnel.streams import Limits, Stream

try:
    # Where there is aiohttp's, in C, it takes a fortieth of the time of ours.
    from aiohttp._websocket.mask import _websocket_mask_cython as unmask  # type: ignore[import-not-found]
except ImportError:
    from remuda.tunnel.websocket import apply_mask as unmask

log = logging.getLogger(__name__)

_BATCH = 128 * 1024  # written at once
_HIGH_WATER = 256 * 1024  # in the transport: what is urgent waits behind no more than that
_FAREWELL_SECONDS = 5.0  # for what was said last to be taken


class Asking(NamedTuple):
    """A request for a tunnel; names of headers in lower case."""

    method: str
    headers: Mapping[str, str]
    address: str
    certificate: bytes | None = None  # the client's, verified (DER)


class Refusal(NamedTuple):
    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()


class Admission(NamedTuple):
    """`headers` belong into the 101; `accept` takes the connection over, given what the client has sent already."""

    headers: tuple[tuple[str, str], ...]
    accept: Callable[[asyncio.Transport, bytes], asyncio.Protocol]


Authorize = Callable[[Asking], Awaitable["Key | None"]]
"""Whose tunnel it is, or None; whatever it raises as ValueError is told to the client."""


class AcceptRate:
    """So many a second, and a few more at once. Who is turned away is told to come back within the time it takes to
    serve those who came before."""

    def __init__(self, per_second: float = 200.0, at_once: int = 200) -> None:
        self._rate = per_second
        self._most = float(at_once)
        self._left = self._most
        self._turned_away = 0.0
        self._at = -math.inf

    def wait(self, now: float, chance: Callable[[], float] = random.random) -> int:
        """0: come in; else seconds."""
        passed = min(now - self._at, self._most / self._rate + 60.0)
        self._at = now
        self._left = min(self._most, self._left + passed * self._rate)
        self._turned_away = max(0.0, self._turned_away - passed * self._rate)
        if self._left >= 1:
            self._left -= 1
            return 0
        self._turned_away += 1
        return 1 + int(chance() * min(60.0, 1.0 + self._turned_away / self._rate))


class Server:
    """`allow` is what clients may have this end dial for them; `refused` is told of anything else they ask for: whose
    tunnel it is, where it comes from, and what was to be dialled."""

    def __init__(
        self,
        authorize: Authorize,
        sessions: Sessions,
        *,
        allow: Allow = NOTHING,
        refused: Callable[[Key, str, str], None] = lambda key, address, what: None,
        timing: Timing = Timing(),  # noqa: B008
        limits: Limits = Limits(),  # noqa: B008
        rate: AcceptRate | None = None,
    ) -> None:
        self.sessions = sessions
        self.timing = timing
        self.limits = limits
        self.allow = allow
        self.refused = refused
        self._authorize = authorize
        self._rate = rate or AcceptRate()

    async def admit(self, asking: Asking) -> Refusal | Admission:
        try:
            key = await self._authorize(asking)
        except ValueError as error:
            return Refusal(400, str(error))
        if key is None:
            return Refusal(401, "failed authentication")
        # After the question who it is: a flood of strangers must not keep out those who belong here.
        wait = self._rate.wait(asyncio.get_running_loop().time())
        if wait:
            return Refusal(503, "too many new tunnels; retry later", (("Retry-After", str(wait)),))
        try:
            headers = accepted_headers(asking.method, asking.headers)
        except HandshakeError as error:
            return Refusal(400, str(error))
        confirms = asking.headers.get(CONFIRMS[0].lower()) == CONFIRMS[1]

        def accept(transport: asyncio.Transport, rest: bytes) -> asyncio.Protocol:
            session = ServerSession(self, key, asking.address, confirms)
            session.begin(transport, rest)
            return session

        return Admission(tuple(headers), accept)


class ServerSession(asyncio.Protocol):
    """One tunnel. Everything happens on the event loop it was made on."""

    def __init__(self, server: Server, key: Key, address: str, confirms: bool) -> None:
        self.key = key
        self.address = address
        self.confirms = confirms  # tells when it has connected a stream
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
            wanted=self._wanted,
            output=self._has_output,
            timing=server.timing,
            limits=server.limits,
            name=str(key),
        )

    def begin(self, transport: asyncio.Transport, rest: bytes) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._timer = self._loop.call_later(self.mux.timing.ping_every, self._tick)
        self._sessions.add(self)
        if rest:
            self.data_received(rest)

    def end(self, reason: str, code: int = websocket.GOING_AWAY) -> None:
        """Once; whoever still uses a stream of it hears why."""
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self.mux.lost(reason)
        self._sessions.remove(self, reason)
        if self._full:
            self._transport.abort()  # the end of a frame may never be taken: there is no saying goodbye
        elif not self._transport.is_closing():
            close = self._frames.frame(websocket.CLOSE, websocket.close_payload(code, reason))
            self._transport.write(b"".join(close))
            self._transport.close()
            self._loop.call_later(min(self.mux.timing.ping_every, _FAREWELL_SECONDS), self._transport.abort)

    def is_stalled(self, now: float) -> bool:
        """Return whether the session has missed life signs or has ended: it may be gone, so others are preferred."""
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
        self._mind_reading()

    def _mind_reading(self) -> None:
        """Not before it is time to."""
        wait = self.mux.read_at - self._loop.time()
        if wait > 0 and self._reading and not self._ended:
            self._reading = False
            self._transport.pause_reading()
            self._loop.call_later(wait, self._read_on)

    def _read_on(self) -> None:
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

    # What is sent

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
            self._has_output()  # after the others have had their turn

    def _tick(self) -> None:
        now = self._loop.time()
        buffered = self._transport.get_write_buffer_size()
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
        self._mind_reading()

    def _wanted(self, stream: Stream) -> None:
        if not answer(stream, self._allow):
            self._refused(self.key, self.address, f"{stream.network[:8]}/{stream.address[:256]}")
