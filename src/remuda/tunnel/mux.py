"""Session of a tunnel, without I/O: multiplexes streams over one connection and detects a dead peer.

The caller, an event loop or a thread, only moves bytes: it passes messages to `receive`, sends what `next` returns, and
calls `tick` as time passes. One thread at a time may use a session.

What must stay true:
- Messages are sent in this order: pongs, pings, control messages (errors, pauses, lists), then data, one chunk of each
  stream in turn. So a control message never waits for bulk data, and no stream waits for another one.
- A message about one stream never affects another stream. Only bytes that are not the protocol end the session.
- A peer that sends nothing, or accepts nothing, for the time set in `Timing` is dead. Every message counts as a sign of
  life. Time in which this process did not run does not count.
- Stream numbers of both ends never collide: a server uses even numbers, a client odd ones, and both begin far above
  those of other implementations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from remuda.tunnel import TunnelError, protocol, websocket
from remuda.tunnel.protocol import Buffer, ProtocolError
from remuda.tunnel.streams import Stream, StreamLimits

# remotedialer counts streams from 2 at servers and from 1 at clients, so its own numbers collide when both ends open
# streams.
_FIRST_NUMBER = 1 << 32
_MAX_REPORTED = 1024  # stream numbers that were reported as unknown


class TunnelLost(TunnelError):
    """The session is over; the text says why."""


class Timing(NamedTuple):
    """Seconds."""

    # remotedialer renews its read deadline of 60 s only for pings and pongs, so data alone does not keep a session with
    # a Go peer alive.
    ping_every: float = 10.0
    sync_every: float = 60.0
    heard_within: float = 30.0
    sent_within: float = 30.0
    linger: float = 60.0  # time for a stream that was closed at this end to send its remaining data
    slowly: float = 0.1  # pause between two reads while a sender has not yet received the request to pause


class Mux:
    """Session of a tunnel.

    `wanted` is called with each stream that the other end opens, and must give it a consumer or fail it; without it,
    all streams are refused. `output` is called when there is something to send after there was nothing.
    """

    def __init__(
        self,
        *,
        client: bool,
        now: float,
        wanted: Callable[[Stream], None] | None = None,
        output: Callable[[], None] | None = None,
        timing: Timing = Timing(),  # noqa: B008
        limits: StreamLimits = StreamLimits(),  # noqa: B008
        name: str = "",
    ) -> None:
        self.limits = limits
        self.timing = timing
        self.streams: dict[int, Stream] = {}
        self.bytes_in = self.bytes_out = self.error_bytes_out = 0
        self.opened = self.closed = 0  # streams
        self.unsent = 0  # bytes of all streams together
        self.read_at = now  # do not read from the connection before this time
        self._client = client
        self._name = name
        self._on_connect = wanted
        self._on_output = output
        self._next_stream = _FIRST_NUMBER + (1 if client else 2)
        self._message_number = 0
        self._now = now
        self._control_queue: deque[tuple[int, list[Buffer]]] = deque()
        self._data_queue: deque[Stream] = deque()
        self._pong_payload: Buffer | None = None
        self._ping_due = False
        self._reported_unknown: dict[int, None] = {}
        self._closing: dict[Stream, float] = {}  # streams closed at this end, with the deadline for their data
        self._lost_reason = ""
        self._control_queue_full = False
        self._last_received = self._last_sent = self._last_tick = now
        self._ping_at = now + timing.ping_every
        self._sync_at = now + timing.sync_every
        self._last_sync = now  # time of the other end's last list of streams

    # Calls of this end

    def open(self, network: str, address: str) -> Stream:
        """Open a stream; data may be written at once. Raises TunnelLost, and ValueError for an invalid address."""
        if self._lost_reason:
            raise TunnelLost(self._lost_reason)
        text = protocol.connect_text(network, address)
        stream = Stream(self, self._next_stream, network, address, self._now)
        self._next_stream += 2
        self._add(stream)
        self.urge(stream.number, protocol.CONNECT, text)
        return stream

    def lost(self, reason: str) -> None:
        """End the session because its connection is lost. Each stream ends after its consumer has read its data."""
        if self._lost_reason:
            return
        # Set the reason first: consumers that are told of the end below may call `open`, which must fail.
        self._lost_reason = reason
        streams = list(self.streams.values())
        self.closed += len(streams)
        self.streams.clear()
        self._control_queue.clear()
        self._data_queue.clear()
        self._closing.clear()
        for stream in streams:
            stream.over(f"tunnel disconnect: {reason}")
        # The callbacks refer to the owner of this object, which refers to it: break the cycle, so that both are freed
        # now.
        self._on_connect = self._on_output = None

    def silent_for(self, now: float) -> float:
        return now - self._last_received

    # Messages from the other end

    def receive(self, opcode: int, payload: Buffer, now: float) -> None:
        """Process one WebSocket message. Raises TunnelLost and ProtocolError."""
        self._now = self._last_received = now
        if opcode == websocket.BINARY:
            self._handle_message(payload)
        elif opcode == websocket.PING:
            self._pong_payload = payload
            self._signal_output()
        elif opcode == websocket.CLOSE:
            code, reason = websocket.close_reason(bytes(payload))
            raise TunnelLost(f"the other end closed the tunnel ({code}{': ' if reason else ''}{reason})")
        elif opcode != websocket.PONG:
            raise ProtocolError("a message is not binary")

    def _handle_message(self, data: Buffer) -> None:
        message = protocol.decode(data)
        kind, payload = message.kind, message.payload
        stream = self.streams.get(message.stream)
        if kind == protocol.DATA:
            self.bytes_in += len(payload)
            if stream is None:
                self._report_unknown(message.stream)
            elif payload:
                stream.arrived(payload)
        elif kind == protocol.CONNECT:
            self._handle_connect(message.stream, payload)
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
            self._handle_sync(protocol.read_sync(payload))

    def _handle_connect(self, number: int, payload: Buffer) -> None:
        # Close the old stream if its number is reused: remotedialer replaces it silently, and its consumer would wait
        # forever.
        known = self.streams.get(number)
        if known is not None:
            self.remove(known)
            known.over("the other end reused its number for another stream")
        # The number is in use again: data for it is no longer a late message of a closed stream.
        self._reported_unknown.pop(number, None)
        try:
            network, address = protocol.read_connect(payload)
        except ProtocolError as error:
            # Fail only this stream. remotedialer drops the whole tunnel for a connect message that it cannot accept.
            self._send_error(number, str(error))
            return
        if self._on_connect is None:
            self._send_error(number, "connect not allowed")
        elif len(self.streams) >= self.limits.streams:
            self._send_error(number, f"too many streams: {len(self.streams)} are open")
        else:
            stream = Stream(self, number, network, address, self._now)
            self._add(stream)
            self._on_connect(stream)

    def _send_error(self, number: int, reason: str) -> None:
        self.urge(number, protocol.ERROR, protocol.error_text(reason))

    def _report_unknown(self, number: int) -> None:
        """Report an unknown stream once: data that was already on its way needs no further answer."""
        if number not in self._reported_unknown:
            if len(self._reported_unknown) >= _MAX_REPORTED:
                del self._reported_unknown[next(iter(self._reported_unknown))]
            self._reported_unknown[number] = None
            self._send_error(number, f"connection not found {self._name}/{number}")

    def _handle_sync(self, known: frozenset[int]) -> None:
        """Close streams that are missing in the other end's list. A stream that may be too new for it gets a second
        chance."""
        for stream in list(self.streams.values()):
            # A list that crosses a new CONNECT on the wire does not contain that stream. remotedialer closes such
            # streams at once (remotedialer#150).
            if stream.number in known:
                stream.missed = False
            elif stream.missed or stream.since < self._last_sync:
                self.remove(stream)
                stream.over("the other end no longer knows this stream")
            else:
                stream.missed = True
        self._last_sync = self._now

    # Output

    def next(self) -> tuple[int, list[Buffer]] | None:
        """Return the next WebSocket message to send, as opcode and buffers, or None."""
        if self._pong_payload is not None:
            payload, self._pong_payload = self._pong_payload, None
            return websocket.PONG, [payload]
        if self._ping_due:
            self._ping_due = False
            # Go peers answer every ping with an empty pong, so an answer cannot be matched to a ping by its payload.
            return websocket.PING, []
        if self._control_queue:
            return self._control_queue.popleft()
        while self._data_queue:
            stream = self._data_queue.popleft()
            if not stream.may_send():
                stream.leaves_queue()
                continue
            chunk = stream.next_chunk()
            self.bytes_out += len(chunk)
            self._message_number += 1
            head = protocol.varint(self._message_number) + stream.header
            if stream.unsent:
                self._data_queue.append(stream)
            else:
                stream.leaves_queue()
                stream.sent_all()
            if stream.waits_for_room and stream.has_room and stream.consumer is not None:
                stream.waits_for_room = False
                stream.consumer.room()
            return websocket.BINARY, [head, chunk]
        return None

    def batch(self, frames: websocket.Frames, size: int) -> bytes:
        """Return the next messages, framed, as one buffer of about `size` bytes; empty if there are none."""
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
        """Write the next messages, framed, over the content of `into`, and return their size. This saves an allocation
        for a caller that has sent all of the last batch."""
        at = 0
        while at < size:
            message = self.next()
            if message is None:
                break
            at = frames.put(into, at, *message)
        return at

    @property
    def has_output(self) -> bool:
        return bool(self._pong_payload is not None or self._ping_due or self._control_queue or self._data_queue)

    def urge(self, number: int, kind: int, payload: bytes = b"") -> None:
        if self._lost_reason:
            return
        if len(self._control_queue) >= self.limits.urgent:
            self._control_queue_full = True  # the next tick ends the session
            return
        self._message_number += 1
        if kind == protocol.ERROR:
            self.error_bytes_out += len(payload)
        message = protocol.Message(self._message_number, number, kind, payload)
        self._control_queue.append((websocket.BINARY, protocol.encode(message)))
        self._signal_output()

    def enqueue(self, stream: Stream) -> None:
        if not self._lost_reason:
            self._data_queue.append(stream)
            self._signal_output()

    def _signal_output(self) -> None:
        if self._on_output is not None:
            self._on_output()

    # Time

    def tick(self, now: float, *, blocked: bool) -> float:
        """Run the timers; return the time of the next call, at the latest. `blocked`: the connection accepts no
        data. Raises TunnelLost."""
        late = now - self._last_tick - max(self.timing.ping_every, 1.0)
        if late > 0:  # this process did not run, so it could not receive
            self._last_received += late
            self._last_sent += late
        self._now = self._last_tick = now
        # A connection with nothing to send makes no progress either, and is not dead.
        if not blocked:
            self._last_sent = now
        self._check(now)
        for stream in [stream for stream, until in self._closing.items() if until <= now]:
            stream.fail(f"its remaining data was not accepted within {self.timing.linger:g} s")
        if now >= self._ping_at:
            self._ping_at = now + self.timing.ping_every
            # A server's pings are for clients that send none of their own.
            if self._client or now - self._last_received >= self.timing.ping_every:
                self._ping_due = True
                self._signal_output()
        # Only clients send lists, as in remotedialer. They free streams of the server whose closing ERROR was lost
        # (rancher#44576).
        if self._client and now >= self._sync_at:
            self._sync_at = now + self.timing.sync_every
            self.urge(0, protocol.SYNC, protocol.sync_list(self.streams))
        return min(self._ping_at, self._last_received + self.timing.heard_within, now + self.timing.ping_every)

    def progressed(self, now: float) -> None:
        """Record that the connection has accepted data."""
        self._last_sent = now

    def crowded(self) -> None:
        """Slow down reading because a stream has too much unread data.

        The connection then fills up and holds the sender back until it receives the request to pause. Reading does not
        stop: a pause request from the other end must still arrive, or two congested ends would block each other.
        """
        self.read_at = self._now + self.timing.slowly

    def ending(self, stream: Stream) -> None:
        self._closing[stream] = self._now + self.timing.linger

    def _check(self, now: float) -> None:
        if self._control_queue_full:
            raise TunnelLost("the other end does not read control messages")
        if now - self._last_received > self.timing.heard_within:
            raise TunnelLost(f"received nothing from the other end for {self.timing.heard_within:g} s")
        if now - self._last_sent > self.timing.sent_within:
            raise TunnelLost(f"the other end accepted no data for {self.timing.sent_within:g} s")

    # Streams

    def _add(self, stream: Stream) -> None:
        self.opened += 1
        self.streams[stream.number] = stream

    def remove(self, stream: Stream) -> None:
        if self.streams.get(stream.number) is stream:
            self.closed += 1
            self._closing.pop(stream, None)
            del self.streams[stream.number]
