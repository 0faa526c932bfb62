"""The session's core in virtual time: two ends joined by hand, or one end told what to hear."""

from __future__ import annotations

import pytest

from remuda.tunnel import protocol
from remuda.tunnel.mux import Mux, Timing, TunnelLost
from remuda.tunnel.protocol import Message, ProtocolError
from remuda.tunnel.streams import Limits, Stream
from remuda.tunnel.websocket import BINARY, CLOSE, PING, PONG, TEXT, close_payload

SMALL = Limits(pause_above=1000, resume_below=100, most=5000, chunk=100, unsent=300, streams=4, urgent=50)

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


def make(*, client: bool = False, limits: Limits = SMALL, timing: Timing = USUAL) -> tuple[Mux, list[Stream]]:
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


def test_a_stream_is_asked_for_and_data_may_follow_at_once() -> None:
    server, _ = make()
    stream = server.open("tcp", "127.0.0.1:80")
    stream.write(b"hello")
    assert said(server) == [
        (stream.number, protocol.CONNECT, b"tcp/127.0.0.1:80"),
        (stream.number, protocol.DATA, b"hello"),
    ]


def test_data_that_comes_before_the_dial_has_ended_is_kept() -> None:
    client, asked = make(client=True)
    hear(client, 2, protocol.CONNECT, b"tcp/127.0.0.1:80")
    hear(client, 2, protocol.DATA, b"early")
    reader = Reader(asked[0])
    asked[0].flush()
    assert reader.got == b"early"


def test_an_end_that_tells_that_it_is_connected_is_heard_once() -> None:
    server, client, _, at_server, far, _ = both()
    far.confirm()
    far.confirm()
    carry(server, client)
    assert at_server.openings == 1


def test_numbers_of_the_two_ends_never_meet() -> None:
    server, _ = make()
    client, _ = make(client=True)
    theirs = {client.open("tcp", "a:1").number for _ in range(20)}
    ours = {server.open("tcp", "a:1").number for _ in range(20)}
    assert not theirs & ours
    assert min(theirs | ours) > 1 << 32


def test_a_closed_stream_sends_all_it_was_given_then_one_end() -> None:
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


def test_a_failed_stream_says_why_and_sends_nothing_more() -> None:
    server, client, near, _, _, at_client = both()
    near.write(b"x" * 50)
    near.fail("broken")
    assert said(server) == [(near.number, protocol.ERROR, b"broken")]
    hear(client, near.number, protocol.ERROR, b"broken")
    assert at_client.ends == ["broken"]


def test_the_end_is_told_after_the_last_byte_was_taken_and_once() -> None:
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


def test_an_error_of_an_unknown_stream_is_never_answered() -> None:
    server, _ = make()
    hear(server, 77, protocol.ERROR, b"EOF")
    hear(server, 77, protocol.PAUSE)
    hear(server, 77, protocol.RESUME)
    assert said(server) == []


def test_data_of_an_unknown_stream_is_answered_once() -> None:
    server, _ = make()
    for _ in range(5):
        hear(server, 77, protocol.DATA, b"x")
    ((number, kind, text),) = said(server)
    assert (number, kind) == (77, protocol.ERROR)
    assert text.startswith(b"connection not found")


def test_a_number_given_again_ends_the_stream_that_had_it() -> None:
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
def test_a_connect_nobody_understands_costs_that_stream_alone(payload: bytes) -> None:
    client, asked = make(client=True)
    hear(client, 2, protocol.CONNECT, payload)
    assert [(number, kind) for number, kind, _ in said(client)] == [(2, protocol.ERROR)]
    assert asked == []


def test_an_end_that_answers_no_connects_refuses_that_stream_alone() -> None:
    server = Mux(client=False, now=0.0)
    hear(server, 2, protocol.CONNECT, b"tcp/a:1")
    assert said(server) == [(2, protocol.ERROR, b"connect not allowed")]


def test_more_streams_than_allowed_are_refused_one_by_one() -> None:
    client, asked = make(client=True)
    for number in range(2, 16, 2):
        hear(client, number, protocol.CONNECT, b"tcp/a:1")
    assert len(asked) == SMALL.streams
    assert [kind for _, kind, _ in said(client)] == [protocol.ERROR] * 3


# Back-pressure


def test_a_reader_that_is_slow_pauses_its_stream_and_resumes_it_when_nearly_empty() -> None:
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


def test_a_paused_stream_waits_while_others_go_on() -> None:
    server, _ = make()
    one, two = server.open("tcp", "a:1"), server.open("tcp", "a:1")
    said(server)
    hear(server, one.number, protocol.PAUSE)
    one.write(b"1")
    two.write(b"2")
    assert said(server) == [(two.number, protocol.DATA, b"2")]
    hear(server, one.number, protocol.RESUME)
    assert said(server) == [(one.number, protocol.DATA, b"1")]


def test_a_pause_between_writing_and_sending_holds_the_data() -> None:
    server, _ = make()
    stream = server.open("tcp", "a:1")
    stream.write(b"x")
    hear(server, stream.number, protocol.PAUSE)
    assert [kind for _, kind, _ in said(server)] == [protocol.CONNECT]
    hear(server, stream.number, protocol.RESUME)
    assert [kind for _, kind, _ in said(server)] == [protocol.DATA]


def test_to_be_paused_and_to_pause_are_two_things() -> None:
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


def test_to_have_paused_does_not_hold_what_is_written() -> None:
    _, client, _, _, far, at_client = both()
    at_client.takes = 0
    hear(client, far.number, protocol.DATA, b"x" * 1001)
    said(client)
    far.write(b"y")
    assert said(client) == [(far.number, protocol.DATA, b"y")]


def test_ends_that_paused_each_other_and_both_close_still_send_the_rest() -> None:
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


def test_an_end_that_does_not_pause_loses_that_stream_and_no_other() -> None:
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


def test_what_is_held_for_one_that_may_not_have_heard_yet_slows_down_the_reading() -> None:
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


def test_one_that_has_obeyed_keeps_its_stream_however_long_that_holds_much_and_slows_nobody_down() -> None:
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


def test_a_writer_is_told_to_wait_and_when_there_is_room_again() -> None:
    server, _ = make()
    stream = server.open("tcp", "a:1")
    reader = Reader(stream)
    assert stream.write(b"x" * 200)
    assert not stream.write(b"x" * 200)
    assert reader.rooms == 0
    said(server)
    assert reader.rooms == 1


def test_where_many_wait_each_waits_with_less_and_all_are_told_when_there_is_room() -> None:
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


def test_small_writes_travel_together_and_large_ones_in_chunks() -> None:
    server, _ = make()
    stream = server.open("tcp", "a:1")
    said(server)
    for _ in range(10):
        stream.write(b"xxxxx")
    stream.write(b"y" * 120)
    assert [len(payload) for _, _, payload in said(server)] == [50, 100, 20]


# Order


def test_streams_take_turns_and_what_is_urgent_goes_first() -> None:
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


def test_a_flood_of_pings_is_answered_by_the_last_pong() -> None:
    server, _ = make()
    for number in range(1000):
        server.receive(PING, str(number).encode(), 0.0)
    assert sent(server) == [(PONG, b"999")]


def test_an_end_that_asks_much_and_reads_nothing_ends_the_session() -> None:
    client, _ = make(client=True)
    for number in range(100):
        hear(client, number, protocol.CONNECT, b"bad")
    with pytest.raises(TunnelLost, match="does not read"):
        client.tick(1.0, blocked=True)
    assert len(sent(client)) <= SMALL.urgent


# Lists of streams


def test_a_stream_opened_while_a_list_was_on_its_way_lives() -> None:
    server, _ = make()
    server.tick(1.0, blocked=False)
    stream = server.open("tcp", "a:1")
    reader = Reader(stream)
    hear(server, 0, protocol.SYNC, protocol.sync_list([]), 1.0)
    assert reader.ends == []
    hear(server, 0, protocol.SYNC, protocol.sync_list([stream.number]), 61.0)
    hear(server, 0, protocol.SYNC, protocol.sync_list([]), 121.0)
    assert len(reader.ends) == 1


def test_a_stream_missing_in_two_lists_is_closed_without_a_word() -> None:
    server, _ = make()
    server.tick(1.0, blocked=False)
    reader = Reader(server.open("tcp", "a:1"))
    said(server)
    for now in (1.0, 61.0):
        hear(server, 0, protocol.SYNC, b"", now)
    assert len(reader.ends) == 1
    assert said(server) == []


def test_a_client_lists_its_streams_every_minute() -> None:
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


def test_a_server_sends_no_lists() -> None:
    server, _ = make()
    for now in range(5, 200, 5):
        server.receive(PONG, b"", now)
        server.tick(float(now), blocked=False)
        assert all(opcode != BINARY for opcode, _ in sent(server))


# Life signs


def test_a_client_pings_every_ten_seconds_with_nothing_in_it() -> None:
    client, _ = make(client=True)
    pings = 0
    for now in range(1, 61):
        client.receive(PONG, b"", float(now))
        client.tick(float(now), blocked=False)
        messages = [message for message in sent(client) if message[0] == PING]
        assert all(payload == b"" for _, payload in messages)
        pings += len(messages)
    assert pings == 6


def test_a_server_pings_only_who_is_silent() -> None:
    server, _ = make()
    server.receive(PING, b"", 4.0)
    server.tick(10.0, blocked=False)
    assert sent(server) == [(PONG, b"")]
    server.tick(20.0, blocked=False)
    assert sent(server) == [(PING, b"")]


def test_an_end_that_is_silent_is_gone() -> None:
    server, _ = make(timing=Timing(heard_within=30.0))
    for now in range(5, 31, 5):
        server.tick(float(now), blocked=False)
    with pytest.raises(TunnelLost, match="received nothing"):
        server.tick(31.0, blocked=False)


@pytest.mark.parametrize("sign", [(PING, b""), (PONG, b""), (BINARY, b"\x02\x00\x0c")])
def test_everything_it_sends_is_a_life_sign(sign: tuple[int, bytes]) -> None:
    server, _ = make(timing=Timing(heard_within=30.0))
    for now in range(5, 300, 5):
        server.receive(*sign, float(now))
        server.tick(float(now), blocked=False)


def test_an_end_that_takes_nothing_is_gone_even_if_it_talks() -> None:
    server, _ = make(timing=Timing(sent_within=30.0))
    for now in range(5, 31, 5):
        server.receive(PING, b"", float(now))
        server.tick(float(now), blocked=True)
    with pytest.raises(TunnelLost, match="accepted no data"):
        server.tick(31.0, blocked=True)


def test_a_slow_end_that_takes_something_lives() -> None:
    server, _ = make(timing=Timing(sent_within=30.0))
    for now in range(5, 200, 5):
        server.receive(PING, b"", float(now))
        if now % 20 == 0:
            server.progressed(float(now))
        server.tick(float(now), blocked=True)


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    server, _ = make(timing=Timing(heard_within=30.0))
    server.tick(5.0, blocked=False)
    server.tick(600.0, blocked=True)  # it slept, and has had no chance to read
    for now in (605.0, 610.0, 615.0):
        server.tick(now, blocked=False)
    with pytest.raises(TunnelLost):  # but what passes from now on does
        server.tick(620.0, blocked=False)


def test_what_a_closed_stream_cannot_send_is_given_up_some_time() -> None:
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


def test_every_stream_ends_with_the_session_once_its_data_is_taken() -> None:
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


def test_a_close_says_why() -> None:
    server, _ = make()
    with pytest.raises(TunnelLost, match="1001: the client is stopping"):
        server.receive(CLOSE, close_payload(1001, "the client is stopping"), 0.0)


@pytest.mark.parametrize("message", [(TEXT, b"x"), (BINARY, b""), (BINARY, b"\x02\x00\x10123")])
def test_what_is_no_protocol_ends_the_session(message: tuple[int, bytes]) -> None:
    server, _ = make()
    with pytest.raises(ProtocolError):
        server.receive(*message, 0.0)


def test_kinds_nobody_knows_and_announcements_are_ignored() -> None:
    server, _ = make()
    for kind in (4, 5, 9, 100):
        hear(server, 0, kind, b"c/1")
    assert sent(server) == []
