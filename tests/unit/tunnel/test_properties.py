"""What must be true of any conversation of two ends, and of one end whatever it is told."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.tunnel import protocol
from remuda.tunnel.mux import Mux, TunnelLost
from remuda.tunnel.protocol import Message, ProtocolError
from remuda.tunnel.streams import Stream, StreamLimits
from remuda.tunnel.websocket import BINARY, PING, PONG, Frames, WebSocketError
from tests.lab import tunnel_raw
from tests.lab.tunnel_model import World

_SIGNED = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
_MOVES = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 31), st.integers(0, 2000)), max_size=250)


@given(_MOVES)
@settings(max_examples=150)
def test_mux_pair_loses_no_data_and_converges(script) -> None:
    world = World()
    world.play(script)
    world.settle()


@given(_SIGNED)
def test_varint_round_trips_and_matches_go_encoding(number: int) -> None:
    assert protocol.varint(number) == tunnel_raw.varint(number)
    assert protocol.decode(protocol.varint(number) + b"\x00\x0c").number == number


@given(_SIGNED, _SIGNED, st.integers(1, 8), st.binary(max_size=300))
def test_message_round_trips(number: int, stream: int, kind: int, payload: bytes) -> None:
    wire = b"".join(map(bytes, protocol.encode(Message(number, stream, kind, payload))))
    assert wire == tunnel_raw.message(kind, stream, payload, number=number)
    assert protocol.decode(wire) == (number, stream, kind, payload)


@given(st.sets(_SIGNED, max_size=20))
def test_sync_list_round_trips(streams: set[int]) -> None:
    assert protocol.read_sync(protocol.sync_list(streams)) == streams


@given(st.binary(max_size=400))
def test_arbitrary_bytes_decode_or_raise_protocol_error(data: bytes) -> None:
    readers = {protocol.CONNECT: protocol.read_connect, protocol.ERROR: protocol.read_error}
    readers |= {
        protocol.ADD: protocol.read_client,
        protocol.REMOVE: protocol.read_client,
        protocol.SYNC: protocol.read_sync,
    }
    try:
        message = protocol.decode(data)
        readers.get(message.kind, bytes)(message.payload)
    except ProtocolError:
        pass  # and nothing else


_PAYLOADS = st.lists(st.binary(max_size=200) | st.sampled_from([b"x" * 126, b"y" * 65535, b"z" * 65536]), max_size=6)


@given(_PAYLOADS, st.booleans(), st.integers(1, 40))
def test_split_frames_decode_to_the_same_messages(payloads: list[bytes], mask: bool, piece: int) -> None:
    sender, receiver = Frames(mask=mask), Frames(mask=not mask)
    wire = b"".join(bytes(part) for payload in payloads for part in sender.frame(BINARY, payload))
    step = max(piece, len(wire) // 500)
    got = [message for at in range(0, len(wire), step) for message in receiver.feed(wire[at : at + step])]
    assert got == [(BINARY, payload) for payload in payloads]


@given(st.binary(min_size=1, max_size=500), st.lists(st.integers(0, 500), max_size=8), st.booleans())
def test_fragments_interleaved_with_pings_form_a_single_message(payload: bytes, cuts: list[int], mask: bool) -> None:
    writer = tunnel_raw.RawEnd(None, None, masks=mask)
    places = [0, *sorted(min(cut, len(payload)) for cut in cuts), len(payload)]
    wire = b""
    for at, (start, stop) in enumerate(pairwise(places)):
        final = at == len(places) - 2
        wire += writer.frame(BINARY if at == 0 else 0, payload[start:stop], final=final) + writer.frame(PING, b"?")
    got = list(Frames(mask=not mask).feed(wire))
    assert [message for message in got if message[0] == BINARY] == [(BINARY, payload)]
    assert got.count((PING, b"?")) == len(places) - 1


@given(st.lists(st.binary(max_size=100), max_size=10), st.booleans())
def test_arbitrary_bytes_are_frames_or_raise_websocket_error(pieces: list[bytes], mask: bool) -> None:
    frames = Frames(mask=mask, limit=1000)
    try:
        for piece in pieces:
            for opcode, payload in frames.feed(piece):
                assert opcode in (1, BINARY, 8, PING, PONG)
                assert len(payload) <= 1000
    except WebSocketError:
        pass  # and nothing else


class _Glutton:
    """Takes whatever comes."""

    def take(self, data) -> int:
        return len(data)

    def room(self) -> None: ...

    def opened(self) -> None: ...

    def ended(self, reason: str) -> None:
        assert reason


_STREAMS = st.integers(-3, 3) | st.just((1 << 32) + 2) | _SIGNED
_ANYTHING = st.one_of(
    st.binary(max_size=60),
    st.builds(tunnel_raw.message, st.integers(0, 9), _STREAMS, st.binary(max_size=300)),
    st.builds(lambda streams: tunnel_raw.sync(*streams), st.lists(_STREAMS, max_size=4)),
)


@given(st.lists(st.tuples(st.sampled_from([BINARY, BINARY, BINARY, BINARY, 1, 8, PING, PONG]), _ANYTHING), max_size=40))
@settings(max_examples=300)
def test_arbitrary_messages_affect_at_most_their_own_session(messages) -> None:
    def welcome(stream: Stream) -> None:
        if stream.number % 2:
            stream.consumer = _Glutton()
        else:
            stream.fail("connect not allowed")

    mux = Mux(
        client=True, now=0.0, wanted=welcome, limits=StreamLimits(pause_above=100, resume_below=10, most=500, streams=5)
    )
    own = mux.open("tcp", "10.0.0.1:80")  # its consumer takes nothing
    own.write(b"hello")
    try:
        for now, (opcode, payload) in enumerate(messages):
            mux.receive(opcode, payload, float(now))
            assert len(mux.streams) <= 6
            assert sum(stream.held for stream in mux.streams.values()) <= 6 * 500
            mux.tick(float(now), blocked=False)
    except (ProtocolError, TunnelLost) as error:
        mux.lost(str(error))
        assert not mux.streams
    while (message := mux.next()) is not None:
        assert message[0] in (BINARY, PING, PONG)


def test_confirm_is_not_sent_while_the_peer_is_paused() -> None:
    """It is said with the word for going on: whoever takes it for that would send more than can be held."""
    asked: list[Stream] = []
    mux = Mux(client=True, now=0.0, wanted=asked.append, limits=StreamLimits(pause_above=100))
    mux.receive(BINARY, tunnel_raw.message(tunnel_raw.CONNECT, 2, b"tcp/10.0.0.1:80"), 0.0)
    mux.receive(BINARY, tunnel_raw.message(tunnel_raw.DATA, 2, b"x" * 200), 0.0)
    asked[0].confirm()
    asked[0].consumer = _Glutton()
    assert _kinds(mux) == ["pause"]
    asked[0].flush()
    assert _kinds(mux) == ["resume"]


def _kinds(mux: Mux) -> list[str]:
    return [tunnel_raw.understood(b"".join(map(bytes, said[1]))).kind for said in iter(mux.next, None)]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_buffered_stream_data_has_small_memory_overhead(piece: int) -> None:
    mux = Mux(client=True, now=0.0, wanted=lambda stream: None)
    mux.receive(BINARY, tunnel_raw.message(tunnel_raw.CONNECT, 2, b"tcp/10.0.0.1:80"), 0.0)
    data = tunnel_raw.message(tunnel_raw.DATA, 2, b"x" * piece)
    tracemalloc.start()
    try:
        for _ in range((1 << 15) // piece):
            mux.receive(BINARY, data, 0.0)
        held = mux.streams[2].held
        assert held == (1 << 15) // piece * piece
        assert tracemalloc.get_traced_memory()[1] < 1.5 * held + (1 << 15)
    finally:
        tracemalloc.stop()


def test_heavily_fragmented_message_has_bounded_memory() -> None:
    writer = tunnel_raw.RawEnd(None, None, masks=True)
    frames = Frames(mask=False)
    wire = writer.frame(BINARY, b"x", final=False) + writer.frame(0, b"y", final=False) * 20_000
    tracemalloc.start()
    try:
        for at in range(0, len(wire), 4096):
            assert not list(frames.feed(wire[at : at + 4096]))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_session_is_dropped_when_replies_are_never_read() -> None:
    """Each word about a stream there is not wants an answer; an end that never reads them must not be remembered."""
    mux = Mux(client=True, now=0.0, limits=StreamLimits(urgent=1000))
    tracemalloc.start()
    try:
        for number in range(8_000):
            mux.receive(BINARY, tunnel_raw.message(tunnel_raw.DATA, number, b"x"), 0.0)
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()
    with pytest.raises(TunnelLost, match="does not read"):
        mux.tick(0.1, blocked=True)
