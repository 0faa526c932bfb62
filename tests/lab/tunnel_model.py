"""Two cores of the tunnel joined by bytes, played by a script, and judged by what must be true of any conversation.

A script is a list of small numbers, from hypothesis or from a seed: who opens, writes, takes, closes and fails which
stream, how many messages leave an end, how many bytes of the line arrive, how time passes. The line carries a bounded
number of bytes, as real ones do, and the limits are small, so that every limit is met within a few hundred moves.

Judged all along: what arrives is a prefix of what was written; a paused end sends nothing; what is held is bounded.
Judged once everything has been delivered and taken: nothing is missing, both ends know the same streams, and each end
was told how the other ended a stream, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from random import Random

from remuda.tunnel import protocol
from remuda.tunnel.mux import Mux, Timing
from remuda.tunnel.streams import Stream, StreamLimits
from remuda.tunnel.websocket import BINARY, Frames
from tests.lab.tunnel_raw import understood

LIMITS = StreamLimits(pause_above=400, resume_below=50, most=4000, chunk=64, unsent=300, streams=1000)
_PATIENT = Timing(ping_every=5.0, sync_every=60.0, heard_within=1e9, sent_within=1e9, linger=1e9)
_LINE = 600  # bytes on the line, at which nobody puts more on it
_AHEAD = 1500  # bytes that arrive in one direction before everything of the other has: pauses come through in time
_SLOWEST_LINE = 25.0  # seconds: below what real ends allow, or there would be no tunnel
_REASONS = ("boom", "dial tcp 10.0.0.1:80: connect: connection refused")

Move = tuple[int, int, int]


def script_of(chance: Random, moves: int) -> list[Move]:
    return [(chance.randrange(16), chance.randrange(32), chance.randrange(2001)) for _ in range(moves)]


class Party:
    """One side of one stream: what it has written, what it has got, how much more it will take."""

    def __init__(self, stream: Stream, name: str) -> None:
        self.stream = stream
        self.name = name
        self.sent = bytearray()
        self.got = bytearray()
        self.judged = 0  # bytes of what it has got
        self.appetite = 0
        self.heard_end: str | None = None
        self.finished = ""  # how it has ended the stream itself
        self.wants_room = False

    def take(self, data) -> int:
        assert self.heard_end is None, f"{self.name}: bytes after the end"
        taken = min(self.appetite, len(data))
        self.appetite -= taken
        self.got += data[:taken]
        return taken

    def room(self) -> None:
        assert self.wants_room, f"{self.name}: told of room without having asked"
        self.wants_room = False

    def opened(self) -> None:
        pass

    def ended(self, reason: str) -> None:
        assert self.heard_end is None, f"{self.name}: two ends"
        assert not self.finished, f"{self.name}: an end for one that has left"
        self.heard_end = reason

    @property
    def busy(self) -> bool:
        return bool(self.stream.held or self.stream.unsent)

    @property
    def over(self) -> bool:
        return bool(self.finished) or self.heard_end is not None

    def write(self, size: int) -> None:
        if self.over or not self.stream.is_open or self.wants_room:
            return
        start = len(self.sent)
        data = bytes((at * 7 + len(self.name)) % 251 for at in range(start, start + size))
        self.sent += data
        self.wants_room = not self.stream.write(data) and self.stream.is_open

    def finish(self, how: str) -> None:
        if self.over:
            return
        self.finished = how
        if how == protocol.END:
            self.stream.close()
        else:
            self.stream.fail(how)


class Side:
    """One end: a core, its framing, and the line away from it."""

    def __init__(self, world: World, name: str, *, client: bool) -> None:
        self.name = name
        self.mux = Mux(client=client, now=0.0, wanted=self._wanted, timing=_PATIENT, limits=LIMITS, name=name)
        self.frames = Frames(mask=client)
        self.line = bytearray()
        self.parties: dict[int, Party] = {}
        self.dialling: list[Party] = []
        self.obeys: set[int] = set()  # streams that have been paused, as far as has arrived here
        self.refuses_next = False
        self.opened = 0  # streams, from here
        self.ahead = 0  # bytes from here that have arrived since all of the other direction had
        self.spoken: list[tuple[int, bytes]] = []  # every message, as opcode and payload
        self._world = world

    def open(self) -> None:
        stream = self.mux.open("tcp", f"10.0.0.{next(self._world.numbers) % 250}:80")
        party = stream.consumer = Party(stream, f"{self.name} {stream.number}")
        self.parties[stream.number] = party
        self.opened += 1

    def _wanted(self, stream: Stream) -> None:
        party = Party(stream, f"{self.name} {stream.number}")
        self.parties[stream.number] = party
        if self.refuses_next:
            self.refuses_next = False
            party.finish("connect not allowed")
        else:
            self.dialling.append(party)

    def dialled(self) -> None:
        if self.dialling:
            party = self.dialling.pop(0)
            if party.stream.is_open:
                party.stream.confirm()
            party.stream.consumer = party
            party.stream.flush()

    def speak(self, messages: int) -> None:
        while messages and len(self.line) < _LINE:
            message = self.mux.next()
            if message is None:
                return
            opcode, buffers = message
            self.spoken.append((opcode, b"".join(map(bytes, buffers))))
            if opcode == BINARY:
                said = understood(self.spoken[-1][1])
                assert not (said.kind == "data" and said.stream in self.obeys), f"{self.name} sends while paused"
                assert len(said.payload) <= max(LIMITS.chunk, protocol.LONGEST_CONNECT) or said.kind == "sync"
            self.line += b"".join(map(bytes, self.frames.frame(opcode, *buffers)))
            messages -= 1

    def hear(self, data: bytes) -> None:
        for opcode, payload in self.frames.feed(data):
            if opcode == BINARY:
                said = understood(bytes(payload))
                if said.kind in ("pause", "resume"):
                    (self.obeys.add if said.kind == "pause" else self.obeys.discard)(said.stream)
            self.mux.receive(opcode, payload, self._world.now)


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.numbers = count()
        self.sides = (Side(self, "server", client=False), Side(self, "client", client=True))
        self._drained = 0.0

    def play(self, script: Iterable[Move]) -> None:
        moves = (self._open, self._write, self._take, self._speak, self._arrive, self._close, self._fail, self._dial)
        moves += (
            self._write,
            self._take,
            self._speak,
            self._arrive,
            self._speak,
            self._arrive,
            self._pass,
            self._refuse,
        )
        for what, which, much in script:
            moves[what % len(moves)](self.sides[which % 2], which // 2, much)
            self.judge()

    def _open(self, side: Side, _which: int, _much: int) -> None:
        side.open()

    def _party(self, side: Side, which: int) -> Party | None:
        """The latest are the likeliest: nothing happens any more to most."""
        everybody = list(side.parties.values())[-8:]
        return everybody[which % len(everybody)] if everybody else None

    def _write(self, side: Side, which: int, much: int) -> None:
        if (party := self._party(side, which)) is not None and party not in side.dialling:
            party.write(much % 700)

    def _take(self, side: Side, which: int, much: int) -> None:
        if (party := self._party(side, which)) is not None:
            party.appetite += much % 500
            party.stream.flush()

    def _close(self, side: Side, which: int, _much: int) -> None:
        if (party := self._party(side, which)) is not None:
            party.finish(protocol.END)

    def _fail(self, side: Side, which: int, much: int) -> None:
        if (party := self._party(side, which)) is not None:
            party.finish(_REASONS[much % len(_REASONS)])

    def _dial(self, side: Side, _which: int, _much: int) -> None:
        side.dialled()

    def _refuse(self, side: Side, which: int, _much: int) -> None:
        side.refuses_next = which % 4 == 0

    def _speak(self, side: Side, _which: int, much: int) -> None:
        side.speak(much % 16)

    def _arrive(self, side: Side, _which: int, much: int) -> None:
        self._carry(side, much % (_LINE + 1))
        if side.ahead > _AHEAD:
            self._catch_up(self._other(side))

    def _carry(self, side: Side, size: int) -> None:
        data, side.line = bytes(side.line[:size]), side.line[size:]
        side.ahead += len(data)
        self._other(side).hear(data)

    def _catch_up(self, side: Side) -> None:
        """Everything of this direction arrives."""
        while side.mux.has_output or side.line:
            side.speak(1000)
            self._carry(side, len(side.line))
        self._other(side).ahead = 0

    def _pass(self, _side: Side, _which: int, much: int) -> None:
        """Time, never more than a live line could take to deliver what is on it."""
        self.now += much % 6
        if self.now - self._drained > _SLOWEST_LINE - 6:
            self.deliver()
        for side in self.sides:
            side.mux.tick(self.now, blocked=False)

    def _other(self, side: Side) -> Side:
        return self.sides[1 - self.sides.index(side)]

    def deliver(self) -> None:
        """Everything that is sent arrives. What nobody takes stays where it is."""
        while any(side.mux.has_output or side.line for side in self.sides):
            for side in self.sides:
                self._catch_up(side)
                self.judge()
        self._drained = self.now

    # Judgement

    def judge(self) -> None:
        for side in self.sides:
            for party in side.parties.values():
                facing = self._other(side).parties.get(party.stream.number)
                held = party.stream.held
                # Not `pause_above` and a line: while a pause is on its way the line may be filled again.
                assert held <= LIMITS.most, f"{party.name} holds {held} bytes"
                new = slice(party.judged, len(party.got))
                party.judged = new.stop
                written = facing.sent if facing is not None else b""
                assert written[new] == party.got[new], f"{party.name} got what was not written"

    def settle(self) -> None:
        """Everybody takes everything, and then nothing must be missing."""
        for _ in range(1000):
            for side in self.sides:
                side.refuses_next = False
                while side.dialling:
                    side.dialled()
                for party in side.parties.values():
                    party.appetite = 10_000
                    party.stream.flush()
            self.deliver()
            if not any(side.dialling or any(party.busy for party in side.parties.values()) for side in self.sides):
                break
        else:
            raise AssertionError("bytes are stuck though everybody takes them")
        server, client = self.sides
        assert set(server.mux.streams) == set(client.mux.streams), "the ends disagree on which streams there are"
        for side in self.sides:
            for number, party in side.parties.items():
                facing = self._other(side).parties[number]
                self._judge_end(party, facing)

    def _judge_end(self, party: Party, facing: Party) -> None:
        if party.finished:
            return
        if facing.finished:
            assert party.heard_end == facing.finished, f"{party.name}: {party.heard_end!r}, not {facing.finished!r}"
        else:
            assert party.heard_end is None, f"{party.name} has ended by itself: {party.heard_end}"
            assert not party.wants_room, f"{party.name} was never told of room"
        if facing.finished in ("", protocol.END):
            assert party.got == facing.sent, f"{party.name} got {len(party.got)} of {len(facing.sent)} bytes"
