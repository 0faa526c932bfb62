"""One stream of a tunnel, without I/O: what has come for it, what is to be sent of it, and how it ends.

What must stay true:
- Bytes reach the consumer in order, each once. What it does not take is held, and the other end is asked to pause above
  `Limits.pause_above` and to go on below `Limits.resume_below`. Above `Limits.crowded_above` the tunnel is
  read slowly while more comes: the sender may not have heard yet. One that does not listen loses this stream, and only
  this one, at `Limits.most`. However small the pieces, what is held takes about as much memory as it has bytes.
- Being paused by the other end and having paused it are two things: neither ever undoes the other.
- A stream closed in order has sent all it was given; one that failed, nothing more. The consumer hears of the end
  once, after the last byte that came before it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from remuda.tunnel import protocol
from remuda.tunnel.protocol import Buffer

if TYPE_CHECKING:
    from typing import Protocol

    from remuda.tunnel.mux import Mux

    class Consumer(Protocol):
        """Consumer of a stream at this end. None of these methods may block, and each may call the stream."""

        def take(self, data: Buffer) -> int:
            """Return how many of these bytes it has taken; the rest is kept until it calls `Stream.flush`."""

        def room(self) -> None:
            """After a write that was one too many: more may be written again."""

        def opened(self) -> None:
            """The other end has told that it is connected. Not all ends tell."""

        def ended(self, reason: str) -> None:
            """No more will come; `protocol.END` if that is in order, else why."""


class Limits(NamedTuple):
    """Bytes, but for `streams` and `urgent`, which count."""

    pause_above: int = 2 * 1024 * 1024
    resume_below: int = 256 * 1024
    crowded_above: int = 8 * 1024 * 1024
    most: int = 32 * 1024 * 1024
    chunk: int = 64 * 1024  # of one message
    unsent: int = 256 * 1024  # of one stream, from which on its writer should wait
    all_unsent: int = 4 * 1024 * 1024  # of all, from which on each should wait with two chunks
    streams: int = 4096  # that the other end may have open
    urgent: int = 16384  # messages that wait for an end that reads nothing


OPEN, ENDING, DRAINING, GONE = range(4)  # ENDING: closed here, not all sent; DRAINING: over, not all taken
_PIECE = 64 * 1024


class Stream:
    __slots__ = (
        "_asked_to_pause",
        "_header",
        "_held",
        "_mux",
        "_paused",
        "_pieces",
        "_queued",
        "_reason",
        "_state",
        "_unsent",
        "_waiting",
        "address",
        "confirmed",
        "consumer",
        "missed",
        "network",
        "number",
        "since",
        "waits_for_room",
    )

    def __init__(self, mux: Mux, number: int, network: str, address: str, now: float) -> None:
        self.number = number
        self.network = network
        self.address = address
        self.since = now
        self.consumer: Consumer | None = None
        self.confirmed = False  # the other end has told that it is connected
        self.missed = False  # in the other end's last list of streams
        self.waits_for_room = False  # the last write was one too many
        self._mux = mux
        self._header = protocol.header(number, protocol.DATA)
        self._state = OPEN
        self._reason = ""
        self._pieces: deque[bytearray | memoryview] = deque()
        self._held = 0
        self._asked_to_pause = False
        self._waiting: deque[Buffer] = deque()
        self._unsent = 0
        self._paused = False
        self._queued = False

    @property
    def is_open(self) -> bool:
        return self._state == OPEN

    @property
    def is_gone(self) -> bool:
        return self._state == GONE

    @property
    def held(self) -> int:
        """Bytes that have come and nobody has taken."""
        return self._held

    @property
    def unsent(self) -> int:
        return self._unsent

    @property
    def has_room(self) -> bool:
        limits = self._mux.limits
        most = limits.unsent if self._mux.unsent < limits.all_unsent else 2 * limits.chunk
        return self._state == OPEN and self._unsent < most

    # What this end does

    def write(self, data: Buffer) -> bool:
        """Says whether more is welcome; if not, the consumer's `room` will. The data must not change afterwards."""
        if self._state != OPEN:
            return False
        if data:
            self._waiting.append(data)
            self._unsent += len(data)
            self._mux.unsent += len(data)
            if not self._queued and not self._paused:
                self._queue()
        self.waits_for_room = not self.has_room
        return not self.waits_for_room

    def confirm(self) -> None:
        """Tells the other end that this one is connected; one that does not know this takes it for what it says, so it
        is not said before what has come meanwhile has been taken."""
        if self._state == OPEN and not self._asked_to_pause:
            self._mux.urge(self.number, protocol.RESUME)

    def close(self) -> None:
        """In order: what was written is sent first. Nothing that comes from now on is of interest."""
        if self._state == DRAINING:
            self._forget()
        elif self._state == OPEN:
            self._state = ENDING
            self._drop_held()
            if self._unsent:
                self._mux.ending(self)
                self._resume()  # else two ends that paused each other and both close would wait for each other
            else:
                self.sent_all()

    def fail(self, reason: str) -> None:
        """At once; the other end hears why."""
        if self._state in (OPEN, ENDING):
            self._mux.urge(self.number, protocol.ERROR, protocol.error_text(reason))
            self._mux.remove(self)
        self._forget()

    def flush(self) -> None:
        """The consumer takes again."""
        while self._pieces and self.consumer is not None:
            piece = self._pieces.popleft()
            taken = self.consumer.take(piece)
            self._held -= taken
            if taken < len(piece):
                if self._state in (OPEN, DRAINING):
                    self._pieces.appendleft(memoryview(piece)[taken:])
                break
        if self._state == OPEN and self._held < self._mux.limits.resume_below:
            self._resume()
        self._tell_end()

    def _resume(self) -> None:
        if self._asked_to_pause:
            self._asked_to_pause = False
            self._mux.urge(self.number, protocol.RESUME)

    # What the other end does

    def arrived(self, payload: Buffer) -> None:
        if self._state != OPEN:
            return
        taken = self.consumer.take(payload) if self.consumer is not None and not self._pieces else 0
        if taken == len(payload) or self._state != OPEN:
            return
        self._hold(payload[taken:] if taken else payload)
        limits = self._mux.limits
        if self._held > limits.most:
            self._overflow()
            return
        if self._held > limits.pause_above and not self._asked_to_pause:
            self._asked_to_pause = True
            self._mux.urge(self.number, protocol.PAUSE)
        if self._held > limits.crowded_above:
            self._mux.crowded()

    def paused(self) -> None:
        self._paused = True

    def resumed(self) -> None:
        self._paused = False
        if not self.confirmed:
            self.confirmed = True
            if self.consumer is not None:
                self.consumer.opened()
        if self._unsent and not self._queued:
            self._queue()

    def over(self, reason: str) -> None:
        """The other end has closed it, or is gone. What has come may still be taken."""
        if self._state == ENDING:
            self._forget()
        elif self._state == OPEN:
            self._state = DRAINING
            self._reason = reason
            self._drop_unsent()
            self._tell_end()

    # What is sent

    def next_chunk(self) -> Buffer:
        """At most one message's worth, of what waits; small pieces go together."""
        limit = self._mux.limits.chunk
        first = self._waiting.popleft()
        if len(first) > limit:
            view = memoryview(first)
            self._waiting.appendleft(view[limit:])
            first = view[:limit]
        elif self._waiting and len(first) + len(self._waiting[0]) <= limit:
            parts, size = [first], len(first)
            while self._waiting and size + len(self._waiting[0]) <= limit:
                size += len(self._waiting[0])
                parts.append(self._waiting.popleft())
            first = b"".join(parts)
        self._unsent -= len(first)
        self._mux.unsent -= len(first)
        return first

    def may_send(self) -> bool:
        return self._unsent > 0 and not self._paused

    def leaves_queue(self) -> None:
        self._queued = False

    def sent_all(self) -> None:
        if self._state == ENDING:
            self._mux.urge(self.number, protocol.ERROR, protocol.END.encode())
            self._mux.remove(self)
            self._forget()

    @property
    def header(self) -> bytes:
        return self._header

    def _queue(self) -> None:
        self._queued = True
        self._mux.enqueue(self)

    # Ends

    def _hold(self, data: Buffer) -> None:
        size = len(data)
        self._held += size
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) + size <= _PIECE:
            last += data
        else:
            self._pieces.append(bytearray(data))

    def _overflow(self) -> None:
        """The other end was asked to pause, and did not."""
        reason = f"{self._held} bytes are unread, and the sender did not pause when asked to"
        consumer = self.consumer
        self.fail(reason)
        if consumer is not None:
            consumer.ended(reason)

    def _tell_end(self) -> None:
        if self._state == DRAINING and not self._pieces and self.consumer is not None:
            consumer = self.consumer
            self._forget()
            consumer.ended(self._reason)

    def _drop_held(self) -> None:
        self._pieces.clear()
        self._held = 0

    def _drop_unsent(self) -> None:
        self._waiting.clear()
        self._mux.unsent -= self._unsent
        self._unsent = 0

    def _forget(self) -> None:
        self._state = GONE
        self._drop_held()
        self._drop_unsent()
        self.consumer = None
