"""One stream of a tunnel, without I/O: its received data, its unsent data, and its end.

What must stay true:
- Bytes reach the consumer in order, each once. Data that the consumer does not take is buffered. The other end is asked
  to pause above `StreamLimits.pause_above` and to resume below `StreamLimits.resume_below`. Above
  `StreamLimits.crowded_above` the tunnel is read slowly, because the request to pause may still be on its way. A sender
  that ignores it loses this stream, and only this one, at `StreamLimits.most`. The buffer takes about as much memory as
  it has bytes, however small the pieces.
- The pause that the other end asks for and the pause that this end asks for are independent.
- A stream that was closed in order has sent all its data; a stream that failed sends nothing more. The consumer is
  told of the end once, after the last byte.
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
            """Take bytes and return how many; the stream buffers the rest until the consumer calls `Stream.flush`."""

        def room(self) -> None:
            """Resume writing, after a write returned False."""

        def opened(self) -> None:
            """Handle the other end's confirmation that it is connected. Not all implementations send it."""

        def ended(self, reason: str) -> None:
            """Handle the end of the stream; `reason` is `protocol.END` if it was closed in order."""


class StreamLimits(NamedTuple):
    """Limits in bytes, except `streams` and `urgent`, which are counts."""

    # remotedialer pauses and resumes at the same limits.
    pause_above: int = 2 * 1024 * 1024
    resume_below: int = 256 * 1024
    crowded_above: int = 8 * 1024 * 1024
    most: int = 32 * 1024 * 1024
    chunk: int = 64 * 1024  # of one message
    unsent: int = 256 * 1024  # of one stream; its writer should wait above it
    all_unsent: int = 4 * 1024 * 1024  # of all streams; above it each writer should wait at two chunks
    streams: int = 4096  # that the other end may have open
    urgent: int = 16384  # control messages queued for an end that reads nothing


OPEN, ENDING, DRAINING, GONE = range(4)  # ENDING: closed here, data unsent; DRAINING: ended, data untaken
_PIECE = 64 * 1024


class Stream:
    __slots__ = (
        "_asked_to_pause",
        "_header",
        "_held",
        "_mux",
        "_outgoing",
        "_paused",
        "_pieces",
        "_queued",
        "_reason",
        "_state",
        "_unsent",
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
        self.confirmed = False  # the other end has confirmed that it is connected
        self.missed = False  # was missing in the other end's last list of streams
        self.waits_for_room = False  # the last write returned False
        self._mux = mux
        self._header = protocol.header(number, protocol.DATA)
        self._state = OPEN
        self._reason = ""
        self._pieces: deque[bytearray | memoryview] = deque()
        self._held = 0
        self._asked_to_pause = False
        self._outgoing: deque[Buffer] = deque()
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
        """Return how many received bytes the consumer has not taken."""
        return self._held

    @property
    def unsent(self) -> int:
        return self._unsent

    @property
    def has_room(self) -> bool:
        limits = self._mux.limits
        most = limits.unsent if self._mux.unsent < limits.all_unsent else 2 * limits.chunk
        return self._state == OPEN and self._unsent < most

    # Calls of this end

    def write(self, data: Buffer) -> bool:
        """Queue data; return whether more may be written now. If not, `room` of the consumer is called later. The data
        must not change afterwards."""
        if self._state != OPEN:
            return False
        if data:
            self._outgoing.append(data)
            self._unsent += len(data)
            self._mux.unsent += len(data)
            if not self._queued and not self._paused:
                self._queue()
        self.waits_for_room = not self.has_room
        return not self.waits_for_room

    def confirm(self) -> None:
        """Confirm to the other end that this one is connected, by a RESUME message.

        Ends that do not know this meaning take it for a plain RESUME, so it is not sent while this end wants a pause.
        """
        if self._state == OPEN and not self._asked_to_pause:
            self._mux.urge(self.number, protocol.RESUME)

    def close(self) -> None:
        """Close the stream after its unsent data has been sent. Received data is dropped from now on."""
        if self._state == DRAINING:
            self._forget()
        elif self._state == OPEN:
            self._state = ENDING
            self._drop_held()
            if self._unsent:
                self._mux.ending(self)
                self._resume()  # or two ends that have paused each other and both close would wait for each other
            else:
                self.sent_all()

    def fail(self, reason: str) -> None:
        """End the stream at once, and send the reason to the other end."""
        if self._state in (OPEN, ENDING):
            self._mux.urge(self.number, protocol.ERROR, protocol.error_text(reason))
            self._mux.remove(self)
        self._forget()

    def flush(self) -> None:
        """Pass buffered data to the consumer, which can take more."""
        while self._pieces and self.consumer is not None:
            piece = self._pieces.popleft()
            taken = self.consumer.take(piece)
            self._held -= taken
            # `take` may close the stream, which has then dropped its data: do not put the rest back.
            if taken < len(piece):
                if self._state in (OPEN, DRAINING):
                    self._pieces.appendleft(memoryview(piece)[taken:])
                break
        if self._state == OPEN and self._held < self._mux.limits.resume_below:
            self._resume()
        self._notify_end()

    def _resume(self) -> None:
        if self._asked_to_pause:
            self._asked_to_pause = False
            self._mux.urge(self.number, protocol.RESUME)

    # Messages from the other end

    def arrived(self, payload: Buffer) -> None:
        if self._state != OPEN:
            return
        # Data must not overtake pieces that the consumer has not taken yet.
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
        # The first RESUME also confirms the connection, see `confirm`.
        if not self.confirmed:
            self.confirmed = True
            if self.consumer is not None:
                self.consumer.opened()
        if self._unsent and not self._queued:
            self._queue()

    def over(self, reason: str) -> None:
        """End the stream because the other end has closed it or is lost. Received data can still be taken."""
        if self._state == ENDING:
            self._forget()
        elif self._state == OPEN:
            self._state = DRAINING
            self._reason = reason
            self._drop_unsent()
            self._notify_end()

    # Output

    def next_chunk(self) -> Buffer:
        """Return the data of the next message; small pieces are joined."""
        limit = self._mux.limits.chunk
        first = self._outgoing.popleft()
        if len(first) > limit:
            view = memoryview(first)
            self._outgoing.appendleft(view[limit:])
            first = view[:limit]
        elif self._outgoing and len(first) + len(self._outgoing[0]) <= limit:
            parts, size = [first], len(first)
            while self._outgoing and size + len(self._outgoing[0]) <= limit:
                size += len(self._outgoing[0])
                parts.append(self._outgoing.popleft())
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
        # Join small pieces: otherwise a sender of one-byte messages could make the buffer take many times its size.
        if isinstance(last, bytearray) and len(last) + size <= _PIECE:
            last += data
        else:
            self._pieces.append(bytearray(data))

    def _overflow(self) -> None:
        """Fail the stream: the other end was asked to pause and did not."""
        reason = f"{self._held} bytes are unread, and the sender did not pause when asked to"
        consumer = self.consumer
        self.fail(reason)
        if consumer is not None:
            consumer.ended(reason)

    def _notify_end(self) -> None:
        if self._state == DRAINING and not self._pieces and self.consumer is not None:
            # Forget the consumer before the call: it may call the stream again and must not be told of the end twice.
            consumer = self.consumer
            self._forget()
            consumer.ended(self._reason)

    def _drop_held(self) -> None:
        self._pieces.clear()
        self._held = 0

    def _drop_unsent(self) -> None:
        self._outgoing.clear()
        self._mux.unsent -= self._unsent
        self._unsent = 0

    def _forget(self) -> None:
        self._state = GONE
        self._drop_held()
        self._drop_unsent()
        self.consumer = None
