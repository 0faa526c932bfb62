"""Frames and messages of the tunnel, at both of its ends."""

from __future__ import annotations

from remuda.tunnel import protocol, websocket
from remuda.tunnel.mux import Mux, Timing, TunnelLost
from remuda.tunnel.protocol import Buffer, Message, ProtocolError
from remuda.tunnel.streams import Stream, StreamLimits
from remuda.tunnel.websocket import Frames, WebSocketError
from tests.fuzz.source import Source

_LIMIT = 64 * 1024  # bytes of one message
_LIMITS = StreamLimits(pause_above=512, resume_below=128, crowded_above=1024, most=4096, chunk=64, streams=8, urgent=64)
_KINDS = (*range(9), 77)
_STREAMS = (0, 1, 2, 3, (1 << 32) + 1, (1 << 32) + 2, -1, 2**63 - 1)

Read = tuple[list[tuple[int, bytes]], int]


class _Consumer:
    """Takes some of the bytes that come."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.ends = 0

    def take(self, data: Buffer) -> int:
        return min(len(data), self._source.byte())

    def room(self) -> None:
        pass

    def opened(self) -> None:
        pass

    def ended(self, reason: str) -> None:
        self.ends += 1
        assert self.ends == 1


def check(data: bytes) -> None:
    """Raise if frames are read differently in pieces, or a session fails in another way than it says."""
    source = Source(data)
    form = source.byte() % 3
    if form == 0:
        client, sizes = source.flag(), [1 + source.byte() for _ in range(4)]
        raw = source.rest()
        assert _read(raw, client, [len(raw) + 1]) == _read(raw, client, sizes)
        _check_message(raw)
    else:
        _check_session(source, client=form == 1)


def _read(raw: bytes, client: bool, sizes: list[int]) -> Read:
    frames, messages, at, turn = Frames(mask=client, limit=_LIMIT), [], 0, 0
    try:
        while at < len(raw):
            size = sizes[turn % len(sizes)]
            for opcode, payload in frames.feed(raw[at : at + size]):
                messages.append((opcode, bytes(payload)))
            at, turn = at + size, turn + 1
    except WebSocketError as error:
        return messages, error.code
    return messages, 0


def _check_message(raw: bytes) -> None:
    try:
        message = protocol.decode(raw)
    except ProtocolError:
        return
    again = protocol.decode(b"".join(protocol.encode(message)))
    assert again[:3] == message[:3]
    assert bytes(again.payload) == bytes(message.payload)
    for read in (protocol.read_connect, protocol.read_client, protocol.read_sync, protocol.read_error):
        try:
            read(message.payload)
        except ProtocolError:
            pass


def _check_session(source: Source, client: bool) -> None:
    streams: list[Stream] = []

    def wanted(stream: Stream) -> None:
        stream.consumer = _Consumer(source)
        streams.append(stream)
        if source.flag():
            stream.confirm()

    mux = Mux(client=client, now=0.0, wanted=wanted, timing=Timing(), limits=_LIMITS)
    frames, now = Frames(mask=client, limit=_LIMIT), 0.0
    try:
        for _ in range(source.byte() % 64):
            now += source.byte() / 64
            _act(source, mux, frames, streams, now)
            assert len(mux.streams) <= _LIMITS.streams + 4  # those that this end opened itself
            assert all(stream.held <= _LIMITS.most for stream in streams)
    except (TunnelLost, ProtocolError) as error:
        mux.lost(str(error))
    else:
        mux.lost("the end")
    assert not mux.streams


def _act(source: Source, mux: Mux, frames: Frames, streams: list[Stream], now: float) -> None:
    act = source.byte() % 8
    stream = streams[source.byte() % len(streams)] if streams else None
    if act < 3:
        payload = source.take(source.byte())
        head = varints(source.byte(), source.pick(_STREAMS), source.pick(_KINDS), source.flag())
        opcode = (
            websocket.BINARY if source.byte() % 8 else source.pick((websocket.PING, websocket.TEXT, websocket.PONG))
        )
        mux.receive(opcode, head + payload, now)
    elif act == 3 and len(streams) < 4:
        opened = mux.open("tcp", "127.0.0.1:6443")
        opened.consumer = _Consumer(source)
        streams.append(opened)
    elif act == 4 and stream is not None and stream.is_open:
        stream.write(source.take(source.byte()))
    elif act == 5 and stream is not None:
        source.pick((stream.close, stream.flush, lambda: stream.fail("no more")))()
    elif act == 6:
        mux.batch(frames, 4096)
    else:
        mux.tick(now, blocked=source.flag())


def varints(number: int, stream: int, kind: int, deadline: bool) -> bytes:
    """Return the header of a message, with the deadline that some kinds have."""
    head = b"".join(protocol.encode(Message(number, stream, kind, b"")))
    return head if deadline or kind not in (protocol.DATA, protocol.CONNECT) else head[:-3]
