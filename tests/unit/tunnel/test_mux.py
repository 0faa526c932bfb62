"""The session's core in virtual time: two ends joined by hand, or one end told what to hear."""

from __future__ import annotations

import pytest

from remuda.tunnel import protocol
from remuda.tunnel.mux import Mux, Timing, TunnelLost
from remuda.tunnel.protocol import Message, ProtocolError
from remuda.tunnel.streams import Stream, StreamLimits
from remuda.tunnel.websocket import BINARY, CLOSE, PING, PONG, TEXT, close_payload

SMALL = StreamLimits(pause_above=1000, resume_below=100, most=5000, chunk=100, unsent=300, streams=4, urgent=50)

USUAL = Timing()


class Reader:
    """A consumer that takes as much as it is told to."""

    def __init__(self, stream: Stream, takes: int = 1 << 30) -> None:
        self.stream, self.takes = stream, takes
        self.got, self.ends, self.rooms, self.openings = bytearray(), [], 0, 0
        stream.consumer = self

    def take(self, data) -> int:
        count = min(self.takes - len(self.got), len(data))
        self.got += data[:count]
        return count

    def room(self) -> None:
        self.rooms += 1

    def opened(self) -> None:
        self.openings += 1

    def ended(self, reason: str) -> None:
        self.ends.append(reason)


def make(*, client: bool = False, limits: StreamLimits = SMALL, timing: Timing = USUAL) -> tuple[Mux, list[Stream]]:
    asked: list[Stream] = []
    return Mux(client=client, now=0.0, wanted=asked.append, limits=limits, timing=timing), asked


def sent(mux: Mux) -> list[tuple[int, bytes]]:
    """All it has to send now; binary messages without their numbers, which nobody reads."""
    found = []
    while (message := mux.next()) is not None:
        found.append((message[0], b"".join(bytes(part) for part in message[1])))
    return found


def said(mux: Mux) -> list[tuple[int, int, bytes]]:
    """Stream, kind and payload of the protocol's messages it has to send now."""
    decoded = [protocol.decode(data) for opcode, data in sent(mux) if opcode == BINARY]
    return [(message.stream, message.kind, bytes(message.payload)) for message in decoded]


def hear(mux: Mux, stream: int, kind: int, payload: bytes = b"", now: float = 0.0) -> None:
    mux.receive(BINARY, b"".join(protocol.encode(Message(1, stream, kind, payload))), now)


def carry(one: Mux, other: Mux) -> None:
    """Until neither has anything to say."""
    while one.has_output or other.has_output:
        for sender, receiver in ((one, other), (other, one)):
            for opcode, data in sent(sender):
                receiver.receive(opcode, data, 0.0)


def both() -> tuple[Mux, Mux, Stream, Reader, Stream, Reader]:
    server, _ = make()
    client, asked = make(client=True)
    near = server.open("tcp", "127.0.0.1:80")
    at_server = Reader(near)
    carry(server, client)
    return server, client, near, at_server, asked[0], Reader(asked[0])


# Streams


def test_open_sends_connect_and_data_without_waiting() -> None:
    server, _ = make()
    stream = server.open("tcp", "127.0.0.1:80")
    stream.write(b"hello")
    assert said(server) == [
        (stream.number, protocol.CONNECT, b"tcp/127.0.0.1:80"),
        (stream.number, protocol.DATA, b"hello"),
    ]


def test_data_received_before_dial_completes_is_buffered() -> None:
    client, asked = make(client=True)
    hear(client, 2, protocol.CONNECT, b"tcp/127.0.0.1:80")
    hear(client, 2, protocol.DATA, b"early")
    reader = Reader(asked[0])
    asked[0].flush()
    assert reader.got == b"early"


def test_repeated_confirm_notifies_the_consumer_once() -> None:
    server, client, _, at_server, far, _ = both()
    far.confirm()
    far.confirm()
    carry(server, client)
    assert at_server.openings == 1


def test_client_and_server_stream_numbers_never_collide() -> None:
    server, _ = make()
    client, _ = make(client=True)
    theirs = {client.open("tcp", "a:1").number for _ in range(20)}
    ours = {server.open("tcp", "a:1").number for _ in range(20)}
    assert not theirs & ours
    assert min(theirs | ours) > 1 << 32


def test_closed_stream_sends_pending_data_then_a_single_eof() -> None:
    server, client, near, _, _, at_client = both()
    near.write(b"x" * 250)
    near.close()
    messages = said(server)
    assert [kind for _, kind, _ in messages] == [protocol.DATA] * 3 + [protocol.ERROR]
    assert messages[-1][2] == b"EOF"
    for number, kind, payload in messages:
        hear(client, number, kind, payload)
    assert at_client.got == b"x" * 250
    assert at_client.ends == ["EOF"]
    assert said(client) == []  # nothing is echoed
    assert not server.streams
    assert not client.streams


def test_failed_stream_sends_its_reason_and_drops_pending_data() -> None:
    server, client, near, _, _, at_client = both()
    near.write(b"x" * 50)
    near.fail("broken")
    assert said(server) == [(near.number, protocol.ERROR, b"broken")]
    hear(client, near.number, protocol.ERROR, b"broken")
    assert at_client.ends == ["broken"]


def test_stream_end_is_delivered_once_after_the_last_byte() -> None:
    _, client, _, _, far, at_client = both()
    at_client.takes = 0
    hear(client, far.number, protocol.DATA, b"rest")
    for _ in range(3):
        hear(client, far.number, protocol.ERROR, b"EOF")
    assert at_client.ends == []
    at_client.takes = 2
    far.flush()
    assert (bytes(at_client.got), at_client.ends) == (b"re", [])
    at_client.takes = 4
    far.flush()
    far.flush()
    assert (bytes(at_client.got), at_client.ends) == (b"rest", ["EOF"])


def test_error_pause_and_resume_for_unknown_stream_are_ignored() -> None:
    server, _ = make()
    hear(server, 77, protocol.ERROR, b"EOF")
    hear(server, 77, protocol.PAUSE)
    hear(server, 77, protocol.RESUME)
    assert said(server) == []


def test_data_for_unknown_stream_is_answered_with_a_single_error() -> None:
    server, _ = make()
    for _ in range(5):
        hear(server, 77, protocol.DATA, b"x")
    ((number, kind, text),) = said(server)
    assert (number, kind) == (77, protocol.ERROR)
    assert text.startswith(b"connection not found")


def test_reused_stream_number_ends_the_previous_stream() -> None:
    client, asked = make(client=True)
    hear(client, 2, protocol.CONNECT, b"tcp/a:1")
    old = Reader(asked[0])
    hear(client, 2, protocol.CONNECT, b"tcp/b:1")
    new = Reader(asked[1])
    hear(client, 2, protocol.DATA, b"x")
    assert len(old.ends) == 1
    assert (bytes(old.got), bytes(new.got)) == (b"", b"x")
    asked[0].fail("late")  # the old one has nothing to say any more
    assert said(client) == []


@pytest.mark.parametrize("payload", [b"tcp", b"tcp/" + b"x" * 300, b""])
def test_malformed_connect_fails_only_its_own_stream(payload: bytes) -> None:
    client, asked = make(client=True)
    hear(client, 2, protocol.CONNECT, payload)
    assert [(number, kind) for number, kind, _ in said(client)] == [(2, protocol.ERROR)]
    assert asked == []


def test_connect_without_dial_handler_is_denied() -> None:
    server = Mux(client=False, now=0.0)
    hear(server, 2, protocol.CONNECT, b"tcp/a:1")
    assert said(server) == [(2, protocol.ERROR, b"connect not allowed")]


def test_streams_above_the_limit_are_rejected_individually() -> None:
    client, asked = make(client=True)
    for number in range(2, 16, 2):
        hear(client, number, protocol.CONNECT, b"tcp/a:1")
    assert len(asked) == SMALL.streams
    assert [kind for _, kind, _ in said(client)] == [protocol.ERROR] * 3


# Back-pressure


def test_slow_reader_pauses_stream_and_resumes_when_buffer_drains() -> None:
    _, client, _, _, far, at_client = both()
    at_client.takes = 0
    for _ in range(11):
        hear(client, far.number, protocol.DATA, b"x" * 100)
    assert said(client) == [(far.number, protocol.PAUSE, b"")]  # once
    at_client.takes = 900
    far.flush()
    assert said(client) == []
    at_client.takes = 1001
    far.flush()
    assert said(client) == [(far.number, protocol.RESUME, b"")]


def test_paused_stream_does_not_block_other_streams() -> None:
    server, _ = make()
    one, two = server.open("tcp", "a:1"), server.open("tcp", "a:1")
    said(server)
    hear(server, one.number, protocol.PAUSE)
    one.write(b"1")
    two.write(b"2")
    assert said(server) == [(two.number, protocol.DATA, b"2")]
    hear(server, one.number, protocol.RESUME)
    assert said(server) == [(one.number, protocol.DATA, b"1")]


def test_pause_before_sending_holds_written_data() -> None:
    server, _ = make()
    stream = server.open("tcp", "a:1")
    stream.write(b"x")
    hear(server, stream.number, protocol.PAUSE)
    assert [kind for _, kind, _ in said(server)] == [protocol.CONNECT]
    hear(server, stream.number, protocol.RESUME)
    assert [kind for _, kind, _ in said(server)] == [protocol.DATA]


def test_pause_state_is_independent_in_each_direction() -> None:
    _, client, _, _, far, at_client = both()
    at_client.takes = 0
    hear(client, far.number, protocol.PAUSE)
    hear(client, far.number, protocol.DATA, b"x" * 1001)
    assert said(client) == [(far.number, protocol.PAUSE, b"")]  # though it is paused itself
    far.write(b"y")
    at_client.takes = 2000
    far.flush()
    assert said(client) == [(far.number, protocol.RESUME, b"")]  # and still waits with its own
    hear(client, far.number, protocol.RESUME)
    assert said(client) == [(far.number, protocol.DATA, b"y")]


def test_pausing_the_peer_does_not_block_own_writes() -> None:
    _, client, _, _, far, at_client = both()
    at_client.takes = 0
    hear(client, far.number, protocol.DATA, b"x" * 1001)
    said(client)
    far.write(b"y")
    assert said(client) == [(far.number, protocol.DATA, b"y")]


def test_mutually_paused_streams_flush_pending_data_on_close() -> None:
    server, client, near, near_reader, far, far_reader = both()
    near_reader.takes = far_reader.takes = 0
    for stream in (near, far):
        stream.write(b"x" * 1500)
    carry(server, client)
    for stream in (near, far):
        stream.write(b"rest")  # waits: either end has asked the other to pause
        stream.close()
    carry(server, client)
    assert near.is_gone
    assert far.is_gone
    assert server.streams == client.streams == {}


def test_peer_ignoring_pause_loses_only_the_overflowing_stream() -> None:
    server, client, near, _, far, at_client = both()
    other = server.open("tcp", "a:1")
    carry(server, client)
    at_client.takes = 0
    for _ in range(51):
        hear(client, near.number, protocol.DATA, b"x" * 100)
    assert said(client)[-1][1] == protocol.ERROR
    assert len(at_client.ends) == 1
    assert far.held == 0
    assert list(client.streams) == [other.number]


CROWDED = SMALL._replace(crowded_above=2000)


def test_large_buffer_of_just_paused_stream_slows_down_reading() -> None:
    server, _ = make(limits=CROWDED)
    stream = server.open("tcp", "a:1")
    reader = Reader(stream, takes=0)
    for _ in range(20):
        hear(server, stream.number, protocol.DATA, b"x" * 100, now=7.0)
    assert server.read_at <= 7.0
    hear(server, stream.number, protocol.DATA, b"x", now=7.0)
    assert server.read_at == 7.0 + server.timing.slowly
    assert [kind for _, kind, _ in said(server)] == [protocol.CONNECT, protocol.PAUSE]
    reader.takes = 5000
    stream.flush()
    hear(server, stream.number, protocol.DATA, b"x", now=8.0)
    assert server.read_at < 8.0
    assert len(reader.got) == 2002


def test_full_stream_of_obedient_peer_is_kept_and_does_not_slow_reading() -> None:
    server, _ = make(limits=CROWDED)
    stream, other = server.open("tcp", "a:1"), server.open("tcp", "a:2")
    Reader(stream, takes=0)
    Reader(other, takes=5000)
    hear(server, stream.number, protocol.DATA, b"x" * 3000, now=1.0)
    hear(server, other.number, protocol.DATA, b"x" * 100, now=2.0)
    assert server.read_at < 2.0
    for now in range(2, 100):
        hear(server, other.number, protocol.DATA, b"x", now=float(now))
        server.tick(float(now), blocked=False)
    assert set(server.streams) == {stream.number, other.number}


def test_writer_is_blocked_when_buffer_is_full_and_notified_when_drained() -> None:
    server, _ = make()
    stream = server.open("tcp", "a:1")
    reader = Reader(stream)
    assert stream.write(b"x" * 200)
    assert not stream.write(b"x" * 200)
    assert reader.rooms == 0
    said(server)
    assert reader.rooms == 1


def test_total_unsent_limit_blocks_writers_and_notifies_waiting_writers() -> None:
    server, _ = make(limits=SMALL._replace(all_unsent=700))
    readers = [Reader(server.open("tcp", "a:1")) for _ in range(4)]
    said(server)
    assert [reader.stream.write(b"x" * 250) for reader in readers] == [True, True, False, False]
    assert server.unsent == 1000
    readers[3].stream.fail("over")
    assert server.unsent == 750
    assert not readers[0].stream.write(b"x")
    said(server)
    assert [reader.rooms for reader in readers] == [1, 0, 1, 0]
    assert server.unsent == 0
    assert readers[0].stream.write(b"x" * 250)


def test_small_writes_are_coalesced_and_large_writes_are_chunked() -> None:
    server, _ = make()
    stream = server.open("tcp", "a:1")
    said(server)
    for _ in range(10):
        stream.write(b"xxxxx")
    stream.write(b"y" * 120)
    assert [len(payload) for _, _, payload in said(server)] == [50, 100, 20]


# Order


def test_control_messages_are_sent_before_stream_data() -> None:
    server, _ = make()
    one, two = server.open("tcp", "a:1"), server.open("tcp", "a:1")
    said(server)
    one.write(b"1" * 300)
    two.write(b"2" * 200)
    first = server.next()
    server.receive(PING, b"abc", 0.0)
    two.fail("over")
    assert first is not None
    assert protocol.decode(b"".join(first[1])).stream == one.number
    rest = sent(server)
    assert rest[0] == (PONG, b"abc")
    kinds = [protocol.decode(data).kind for opcode, data in rest if opcode == BINARY]
    assert kinds == [protocol.ERROR, protocol.DATA, protocol.DATA]


def test_ping_flood_is_answered_with_a_single_pong() -> None:
    server, _ = make()
    for number in range(1000):
        server.receive(PING, str(number).encode(), 0.0)
    assert sent(server) == [(PONG, b"999")]


def test_peer_that_never_reads_replies_ends_the_session() -> None:
    client, _ = make(client=True)
    for number in range(100):
        hear(client, number, protocol.CONNECT, b"bad")
    with pytest.raises(TunnelLost, match="does not read"):
        client.tick(1.0, blocked=True)
    assert len(sent(client)) <= SMALL.urgent


# Lists of streams


def test_stream_opened_during_sync_is_not_closed() -> None:
    server, _ = make()
    server.tick(1.0, blocked=False)
    stream = server.open("tcp", "a:1")
    reader = Reader(stream)
    hear(server, 0, protocol.SYNC, protocol.sync_list([]), 1.0)
    assert reader.ends == []
    hear(server, 0, protocol.SYNC, protocol.sync_list([stream.number]), 61.0)
    hear(server, 0, protocol.SYNC, protocol.sync_list([]), 121.0)
    assert len(reader.ends) == 1


def test_stream_missing_from_two_syncs_is_closed_without_a_message() -> None:
    server, _ = make()
    server.tick(1.0, blocked=False)
    reader = Reader(server.open("tcp", "a:1"))
    said(server)
    for now in (1.0, 61.0):
        hear(server, 0, protocol.SYNC, b"", now)
    assert len(reader.ends) == 1
    assert said(server) == []


def test_client_sends_sync_list_every_minute() -> None:
    client, _ = make(client=True)
    hear(client, 9, protocol.CONNECT, b"tcp/a:1")
    hear(client, 5, protocol.CONNECT, b"tcp/a:1")
    now = 0.0
    lists = []
    while now < 130.0:
        now += 5.0
        client.receive(PONG, b"", now)
        client.tick(now, blocked=False)
        lists += [payload for _, kind, payload in said(client) if kind == protocol.SYNC]
    assert lists == [protocol.sync_list([5, 9])] * 2


def test_server_sends_no_sync_lists() -> None:
    server, _ = make()
    for now in range(5, 200, 5):
        server.receive(PONG, b"", now)
        server.tick(float(now), blocked=False)
        assert all(opcode != BINARY for opcode, _ in sent(server))


# Life signs


def test_client_sends_empty_ping_every_ten_seconds() -> None:
    client, _ = make(client=True)
    pings = 0
    for now in range(1, 61):
        client.receive(PONG, b"", float(now))
        client.tick(float(now), blocked=False)
        messages = [message for message in sent(client) if message[0] == PING]
        assert all(payload == b"" for _, payload in messages)
        pings += len(messages)
    assert pings == 6


def test_server_pings_only_a_silent_client() -> None:
    server, _ = make()
    server.receive(PING, b"", 4.0)
    server.tick(10.0, blocked=False)
    assert sent(server) == [(PONG, b"")]
    server.tick(20.0, blocked=False)
    assert sent(server) == [(PING, b"")]


def test_silent_peer_raises_tunnel_lost() -> None:
    server, _ = make(timing=Timing(heard_within=30.0))
    for now in range(5, 31, 5):
        server.tick(float(now), blocked=False)
    with pytest.raises(TunnelLost, match="received nothing"):
        server.tick(31.0, blocked=False)


@pytest.mark.parametrize("sign", [(PING, b""), (PONG, b""), (BINARY, b"\x02\x00\x0c")])
def test_any_received_message_keeps_the_session_alive(sign: tuple[int, bytes]) -> None:
    server, _ = make(timing=Timing(heard_within=30.0))
    for now in range(5, 300, 5):
        server.receive(*sign, float(now))
        server.tick(float(now), blocked=False)


def test_peer_that_accepts_no_data_raises_tunnel_lost() -> None:
    server, _ = make(timing=Timing(sent_within=30.0))
    for now in range(5, 31, 5):
        server.receive(PING, b"", float(now))
        server.tick(float(now), blocked=True)
    with pytest.raises(TunnelLost, match="accepted no data"):
        server.tick(31.0, blocked=True)


def test_slow_peer_that_makes_progress_keeps_the_session() -> None:
    server, _ = make(timing=Timing(sent_within=30.0))
    for now in range(5, 200, 5):
        server.receive(PING, b"", float(now))
        if now % 20 == 0:
            server.progressed(float(now))
        server.tick(float(now), blocked=True)


def test_process_suspension_does_not_count_as_peer_silence() -> None:
    server, _ = make(timing=Timing(heard_within=30.0))
    server.tick(5.0, blocked=False)
    server.tick(600.0, blocked=True)  # it slept, and has had no chance to read
    for now in (605.0, 610.0, 615.0):
        server.tick(now, blocked=False)
    with pytest.raises(TunnelLost):  # but what passes from now on does
        server.tick(620.0, blocked=False)


def test_closed_paused_stream_drops_pending_data_after_linger_timeout() -> None:
    server, _ = make(timing=Timing(linger=60.0))
    stream = server.open("tcp", "a:1")
    stream.write(b"x")
    hear(server, stream.number, protocol.PAUSE)
    stream.close()
    said(server)
    for now in range(5, 66, 5):
        server.receive(PING, b"", float(now))
        server.tick(float(now), blocked=False)
    assert [kind for _, kind, _ in said(server)] == [protocol.ERROR]
    assert not server.streams


# The end


def test_streams_end_with_lost_session_after_their_data_is_read() -> None:
    server, _ = make()
    empty, full = Reader(server.open("tcp", "a:1")), Reader(server.open("tcp", "a:1"), takes=0)
    hear(server, full.stream.number, protocol.DATA, b"rest")
    server.lost("cut")
    assert empty.ends == ["tunnel disconnect: cut"]
    assert full.ends == []
    full.takes = 4
    full.stream.flush()
    assert full.ends == ["tunnel disconnect: cut"]
    assert not full.stream.write(b"x")
    assert sent(server) == []
    assert (server.opened, server.closed) == (2, 2)
    with pytest.raises(TunnelLost, match="cut"):
        server.open("tcp", "a:1")


def test_close_frame_raises_tunnel_lost_with_its_reason() -> None:
    server, _ = make()
    with pytest.raises(TunnelLost, match="1001: the client is stopping"):
        server.receive(CLOSE, close_payload(1001, "the client is stopping"), 0.0)


@pytest.mark.parametrize("message", [(TEXT, b"x"), (BINARY, b""), (BINARY, b"\x02\x00\x10123")])
def test_invalid_message_raises_protocol_error(message: tuple[int, bytes]) -> None:
    server, _ = make()
    with pytest.raises(ProtocolError):
        server.receive(*message, 0.0)


def test_unknown_message_kinds_and_announcements_are_ignored() -> None:
    server, _ = make()
    for kind in (4, 5, 9, 100):
        hear(server, 0, kind, b"c/1")
    assert sent(server) == []
