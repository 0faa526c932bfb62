"""A campaign against the cores of the tunnel: scenarios of two that speak to each other, judged by the model, and
spoilt conversations told to one. What it has begun with is printed, and every scenario can be told again, or far more
of them:

    REMUDA_SEED=7 REMUDA_ROUNDS=1 .venv/bin/python -m pytest -s tests/faults/tunnel/test_campaign.py
    REMUDA_ROUNDS=100000 .venv/bin/python -m pytest -s tests/faults/tunnel/test_campaign.py
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from remuda.tunnel.allow import Allow
from remuda.tunnel.handshake import ClientHandshake, HandshakeError, HandshakeRefused, accepted
from remuda.tunnel.mux import Mux, TunnelLost
from remuda.tunnel.protocol import ProtocolError
from remuda.tunnel.streams import Stream, StreamLimits
from remuda.tunnel.websocket import Frames, WebSocketError
from tests.faults.conftest import Campaign
from tests.faults.tunnel.mutation import recorded, spoilt
from tests.lab.tunnel_model import World, script_of

_LIMITS = StreamLimits(pause_above=400, resume_below=50, most=4000, chunk=64, unsent=300, streams=30, urgent=500)
_OPENED_HERE = 200  # streams of the victim's own, at most
_ENDLESS = 100_000  # messages: more than any scenario gives reason for


def _run_rounds(scenario: Callable[[Random], None], campaign: Campaign, full: int) -> None:
    failed = []
    for number in campaign.rounds(full, full):
        seed = campaign.seed + number
        try:
            scenario(Random(seed))
        except Exception as error:
            failed.append(f"REMUDA_SEED={seed}: {type(error).__name__}: {str(error)[:500]}")
            print(failed[-1])
    assert not failed, "\n".join(failed[:20])


def test_tunnel_ends_lose_no_data_and_agree_in_random_scenarios(campaign: Campaign) -> None:
    def scenario(chance: Random) -> None:
        world = World()
        world.play(script_of(chance, chance.choice((50, 300, 1500))))
        world.settle()

    _run_rounds(scenario, campaign, 100)


class _Moody:
    """Takes what it feels like taking."""

    def __init__(self, chance: Random, stream: Stream) -> None:
        self._chance = chance
        self.stream = stream

    def take(self, data) -> int:
        mood = self._chance.random()
        if mood < 0.02:
            self.stream.close()
        elif mood < 0.04:
            self.stream.fail("in a mood")
        return self._chance.choice((0, len(data), self._chance.randrange(len(data) + 1)))

    def room(self) -> None: ...

    def opened(self) -> None: ...

    def ended(self, reason: str) -> None:
        assert isinstance(reason, str)


class _Victim:
    """One end as its runner would run it: what it raises is what its runner has to expect."""

    def __init__(self, chance: Random, *, client: bool, own: int) -> None:
        self._chance = chance
        self._frames = Frames(mask=client)
        self._speaks = chance.random() < 0.8
        self._said = 0
        self.mux = Mux(client=client, now=0.0, wanted=self._welcome, limits=_LIMITS)
        for _ in range(min(own, _OPENED_HERE)):
            stream = self.mux.open("tcp", "10.0.0.1:80")
            stream.consumer = _Moody(chance, stream)
            stream.write(b"x" * chance.randrange(500))

    def _welcome(self, stream: Stream) -> None:
        mood = self._chance.random()
        if mood < 0.1:
            stream.fail("connect not allowed")
        elif mood < 0.8:
            stream.confirm()
            stream.consumer = _Moody(self._chance, stream)
            stream.flush()

    def receive_bytes(self, wire: bytes) -> None:
        now, at = 0.0, 0
        while at < len(wire):
            size = self._chance.choice((1, 2, 7, 100, 4096, 1 << 20))
            for opcode, payload in self._frames.feed(wire[at : at + size]):
                self.mux.receive(opcode, payload, now)
            at += size
            now += self._chance.random()
            self.mux.tick(now, blocked=not self._speaks)
            for stream in list(self.mux.streams.values())[:3]:
                stream.flush()
            if self._speaks:
                self.speak()
            self.judge()

    def speak(self) -> None:
        while (message := self.mux.next()) is not None:
            self._frames.frame(message[0], *message[1])
            self._said += 1
            assert self._said < _ENDLESS, "it never stops talking"

    def judge(self) -> None:
        assert len(self.mux.streams) <= _LIMITS.streams + _OPENED_HERE
        for stream in self.mux.streams.values():
            assert stream.held <= _LIMITS.most


def _spoilt_scenario(chance: Random, *, client: bool) -> None:
    messages, own = recorded(chance, of_client=not client)
    wire = spoilt(chance, messages, masks=not client)
    victim = _Victim(chance, client=client, own=own)
    try:
        victim.receive_bytes(wire)
        victim.speak()
    except (WebSocketError, ProtocolError, TunnelLost) as error:
        victim.mux.lost(str(error))
        assert not victim.mux.streams
        victim.speak()


def test_server_survives_corrupted_client_messages(campaign: Campaign) -> None:
    _run_rounds(lambda chance: _spoilt_scenario(chance, client=False), campaign, 400)


def test_client_survives_corrupted_server_messages(campaign: Campaign) -> None:
    _run_rounds(lambda chance: _spoilt_scenario(chance, client=True), campaign, 400)


_ANSWERS = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
    b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 21\r\n\r\nfailed authentication",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
)
_REQUEST = {
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def _garbled(chance: Random, text: bytes) -> bytes:
    wire = bytearray(text)
    for _ in range(chance.choice((0, 1, 3, 10))):
        at = chance.randrange(len(wire) + 1)
        wire[at : at + chance.randrange(3)] = chance.choice((b"", b"\r\n", b":", b"\xff", b"\0", chance.randbytes(3)))
    return bytes(wire)


def test_corrupted_handshake_succeeds_or_is_refused(campaign: Campaign) -> None:
    def scenario(chance: Random) -> None:
        handshake = ClientHandshake("example.com", "/v3/connect")
        answer = _garbled(chance, chance.choice(_ANSWERS))
        try:
            for byte in range(0, len(answer), 7):
                if handshake.feed(answer[byte : byte + 7]):
                    break
            handshake.ended()
        except (HandshakeError, HandshakeRefused):
            pass
        headers = {name: _garbled(chance, value.encode()).decode("latin-1") for name, value in _REQUEST.items()}
        try:
            accepted(chance.choice(("GET", "POST", "")), headers)
        except HandshakeError:
            pass

    _run_rounds(scenario, campaign, 2000)


def test_allow_list_decides_for_any_corrupted_address(campaign: Campaign) -> None:
    rules = Allow(["tcp/127.0.0.1:*", "tcp/10.0.0.0/8:80-90", "tcp/[fd00::/8]:443"])

    def scenario(chance: Random) -> None:
        address = _garbled(chance, chance.choice((b"127.0.0.1:80", b"[fd00::1]:443", b"10.1.2.3:85", b"/run/x.sock")))
        try:
            rules.target(chance.choice(("tcp", "unix", "udp", "")), address.decode("utf-8", "replace"))
        except ValueError:
            pass

    _run_rounds(scenario, campaign, 2000)
