"""A tunnel's session, without I/O: many streams over one connection, and the life signs of both ends.

Messages come in through `receive`, `next` says what to send, `tick` lets time pass; who runs it, an event loop or a
thread, only moves bytes. It is used by one thread at a time.

What must stay true:
- What is sent goes out in this order: answers to pings, pings, errors and pauses and lists, then data, a chunk of each
  stream in turn. So nothing small waits for something big, and no stream for another.
- Nothing the other end says about one stream harms another. Only what is no protocol at all ends the session.
- An end that is silent, or takes nothing, for as long as `Timing` says, is gone. Everything it sends is a life sign.
  Time in which this process did not run does not count against it.
- Numbers of streams never meet: a server's are even, a client's odd, and both begin far above those of other ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from remuda.tunnel import protocol, websocket
from remuda.tunnel.protocol import Buffer, ProtocolError
from remuda.tunnel.streams import Limits, Stream

_FIRST_NUMBER = 1 << 32
_REMEMBERED = 1024  # numbers of streams that were said not to exist


class TunnelLost(Exception):
    """The session is over; the text says why."""


class Timing(NamedTuple):
    """Seconds."""

    ping_every: float = 10.0
    sync_every: float = 60.0
    heard_within: float = 30.0
    sent_within: float = 30.0
    linger: float = 60.0  # how long a stream closed at this end may take to send its rest
    slowly: float = 0.1  # between two reads, while a sender that was asked to pause has not heard of it yet


class Mux:
    """`wanted` is called with a stream the other end asks for: it gives it a consumer, or fails it. Without it all are
    refused. `output` is called when there is something to send after there was nothing."""

    def __init__(
        self,
        *,
        client: bool,
        now: float,
        wanted: Callable[[Stream], None] | None = None,
        output: Callable[[], None] | None = None,
        timing: Timing = Timing(),  # noqa: B008
        limits: Limits = Limits(),  # noqa: B008
        name: str = "",
    ) -> None:
        self.limits = limits
        self.timing = timing
        self.streams: dict[int, Stream] = {}
        self.bytes_in = self.bytes_out = self.error_bytes_out = 0
        self.opened = self.closed = 0  # streams
        self.unsent = 0  # bytes, of all streams
        self.read_at = now  # nothing is to be read from the connection before
        self._client = client
        self._name = name
        self._wanted = wanted
        self._output = output
        self._next_stream = _FIRST_NUMBER + (1 if client else 2)
        self._number = 0
        self._now = now
        self._urgent: deque[tuple[int, list[Buffer]]] = deque()
        self._ready: deque[Stream] = deque()
        self._pong: Buffer | None = None
        self._ping = False
        self._unknown: dict[int, None] = {}
        self._ending: dict[Stream, float] = {}  # closed here, and when that must be through
        self._lost = ""
        self._deaf = False
        self._heard = self._progress = self._ticked = now
        self._ping_at = now + timing.ping_every
        self._sync_at = now + timing.sync_every
        self._last_list = now  # when the other end's list came

    # What this end does

    def open(self, network: str, address: str) -> Stream:
        """Data may be written at once. Raises ValueError for an address that cannot be sent, and TunnelLost."""
        if self._lost:
            raise TunnelLost(self._lost)
        text = protocol.connect_text(network, address)
        stream = Stream(self, self._next_stream, network, address, self._now)
        self._next_stream += 2
        self._add(stream)
        self.urge(stream.number, protocol.CONNECT, text)
        return stream

    def lost(self, reason: str) -> None:
        """The connection is no more: every stream ends, once what has come for it is taken."""
        if self._lost:
            return
        self._lost = reason
        streams = list(self.streams.values())
        self.closed += len(streams)
        self.streams.clear()
        self._urgent.clear()
        self._ready.clear()
        self._ending.clear()
        for stream in streams:
            stream.over(f"tunnel disconnect: {reason}")
        # Whoever runs it is held by these, and holds it: without this both would wait for the cycle collector.
        self._wanted = self._output = None

    def silent_for(self, now: float) -> float:
        return now - self._heard

    # What the other end says

    def receive(self, opcode: int, payload: Buffer, now: float) -> None:
        """One WebSocket message. Raises TunnelLost and ProtocolError."""
        self._now = self._heard = now
        if opcode == websocket.BINARY:
            self._said(payload)
        elif opcode == websocket.PING:
            self._pong = payload
            self._has_output()
        elif opcode == websocket.CLOSE:
            code, reason = websocket.close_reason(bytes(payload))
            raise TunnelLost(f"the other end closed the tunnel ({code}{': ' if reason else ''}{reason})")
        elif opcode != websocket.PONG:
            raise ProtocolError("a message is not binary")

    def _said(self, data: Buffer) -> None:
        message = protocol.decode(data)
        kind, payload = message.kind, message.payload
        stream = self.streams.get(message.stream)
        if kind == protocol.DATA:
            self.bytes_in += len(payload)
            if stream is None:
                self._deny(message.stream)
            elif payload:
                stream.arrived(payload)
        elif kind == protocol.CONNECT:
            self._asked(message.stream, payload)
        elif kind == protocol.ERROR:
            if stream is not None:
                self.remove(stream)
                stream.over(protocol.read_error(payload))
        elif kind == protocol.PAUSE:
            if stream is not None:
                stream.paused()
        elif kind == protocol.RESUME:
            if stream is not None:
                stream.resumed()
        elif kind == protocol.SYNC:
            self._listed(protocol.read_sync(payload))

    def _asked(self, number: int, payload: Buffer) -> None:
        known = self.streams.get(number)
        if known is not None:
            self.remove(known)
            known.over("the other end reused its number for another stream")
        self._unknown.pop(number, None)
        try:
            network, address = protocol.read_connect(payload)
        except ProtocolError as error:
            self._refuse(number, str(error))
            return
        if self._wanted is None:
            self._refuse(number, "connect not allowed")
        elif len(self.streams) >= self.limits.streams:
            self._refuse(number, f"too many streams: {len(self.streams)} are open")
        else:
            stream = Stream(self, number, network, address, self._now)
            self._add(stream)
            self._wanted(stream)

    def _refuse(self, number: int, reason: str) -> None:
        self.urge(number, protocol.ERROR, protocol.error_text(reason))

    def _deny(self, number: int) -> None:
        """Said once: the rest of what was on its way needs no answer."""
        if number not in self._unknown:
            if len(self._unknown) >= _REMEMBERED:
                del self._unknown[next(iter(self._unknown))]
            self._unknown[number] = None
            self._refuse(number, f"connection not found {self._name}/{number}")

    def _listed(self, known: frozenset[int]) -> None:
        """A stream the other end does not list is over there, unless it may just not have heard of it yet."""
        for stream in list(self.streams.values()):
            if stream.number in known:
                stream.missed = False
            elif stream.missed or stream.since < self._last_list:
                self.remove(stream)
                stream.over("the other end no longer knows this stream")
            else:
                stream.missed = True
        self._last_list = self._now

    # What is to be sent

    def next(self) -> tuple[int, list[Buffer]] | None:
        """The next WebSocket message: its opcode and the buffers it is made of."""
        if self._pong is not None:
            payload, self._pong = self._pong, None
            return websocket.PONG, [payload]
        if self._ping:
            self._ping = False
            return websocket.PING, []
        if self._urgent:
            return self._urgent.popleft()
        while self._ready:
            stream = self._ready.popleft()
            if not stream.may_send():
                stream.leaves_queue()
                continue
            chunk = stream.next_chunk()
            self.bytes_out += len(chunk)
            self._number += 1
            head = protocol.varint(self._number) + stream.header
            if stream.unsent:
                self._ready.append(stream)
            else:
                stream.leaves_queue()
                stream.sent_all()
            if stream.waits_for_room and stream.has_room and stream.consumer is not None:
                stream.waits_for_room = False
                stream.consumer.room()
            return websocket.BINARY, [head, chunk]
        return None

    def batch(self, frames: websocket.Frames, size: int) -> bytes:
        """The next messages as one write of about `size` bytes, for whoever hands it on; empty if there are none."""
        buffers: list[Buffer] = []
        while size > 0:
            message = self.next()
            if message is None:
                break
            framed = frames.frame(message[0], *message[1])
            size -= sum(map(len, framed))
            buffers += framed
        return b"".join(buffers)

    def batch_into(self, into: bytearray, frames: websocket.Frames, size: int) -> int:
        """The same, for an end that has written all of the last batch itself: over what was there before. Says how much
        it is."""
        at = 0
        while at < size:
            message = self.next()
            if message is None:
                break
            at = frames.put(into, at, *message)
        return at

    @property
    def has_output(self) -> bool:
        return bool(self._pong is not None or self._ping or self._urgent or self._ready)

    def urge(self, number: int, kind: int, payload: bytes = b"") -> None:
        if self._lost:
            return
        if len(self._urgent) >= self.limits.urgent:
            self._deaf = True  # the session ends with the next tick; nothing more is kept for it
            return
        self._number += 1
        if kind == protocol.ERROR:
            self.error_bytes_out += len(payload)
        message = protocol.Message(self._number, number, kind, payload)
        self._urgent.append((websocket.BINARY, protocol.encode(message)))
        self._has_output()

    def enqueue(self, stream: Stream) -> None:
        if not self._lost:
            self._ready.append(stream)
            self._has_output()

    def _has_output(self) -> None:
        if self._output is not None:
            self._output()

    # Time

    def tick(self, now: float, *, blocked: bool) -> float:
        """Run the timers; return the time of the next call, at the latest. `blocked`: the connection accepts no
        data. Raises TunnelLost."""
        late = now - self._ticked - max(self.timing.ping_every, 1.0)
        if late > 0:  # this process did not run, and could not hear
            self._heard += late
            self._progress += late
        self._now = self._ticked = now
        if not blocked:
            self._progress = now
        self._check(now)
        for stream in [stream for stream, until in self._ending.items() if until <= now]:
            stream.fail(f"its remaining data was not accepted within {self.timing.linger:g} s")
        if now >= self._ping_at:
            self._ping_at = now + self.timing.ping_every
            # A server's pings are for clients that send none of their own.
            if self._client or now - self._heard >= self.timing.ping_every:
                self._ping = True
                self._has_output()
        if self._client and now >= self._sync_at:
            self._sync_at = now + self.timing.sync_every
            self.urge(0, protocol.SYNC, protocol.sync_list(self.streams))
        return min(self._ping_at, self._heard + self.timing.heard_within, now + self.timing.ping_every)

    def progressed(self, now: float) -> None:
        """The connection has taken something."""
        self._progress = now

    def crowded(self) -> None:
        """A stream holds too much of what was read. Reading goes on, but slowly: the connection fills up and holds the
        sender back until it hears that it is to pause. If this end read nothing, it could not hear that itself, and two
        ends that hold too much would wait for each other."""
        self.read_at = self._now + self.timing.slowly

    def ending(self, stream: Stream) -> None:
        self._ending[stream] = self._now + self.timing.linger

    def _check(self, now: float) -> None:
        if self._deaf:
            raise TunnelLost("the other end does not read control messages")
        if now - self._heard > self.timing.heard_within:
            raise TunnelLost(f"received nothing from the other end for {self.timing.heard_within:g} s")
        if now - self._progress > self.timing.sent_within:
            raise TunnelLost(f"the other end accepted no data for {self.timing.sent_within:g} s")

    # Streams

    def _add(self, stream: Stream) -> None:
        self.opened += 1
        self.streams[stream.number] = stream

    def remove(self, stream: Stream) -> None:
        if self.streams.get(stream.number) is stream:
            self.closed += 1
            self._ending.pop(stream, None)
            del self.streams[stream.number]
