"""Our client and our server over TLS: what goes through, what does not, and what happens when it breaks."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
import socket
import ssl
import struct
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from remuda.tunnel.allow import Allow
from remuda.tunnel.connector import TunnelConnector
from remuda.tunnel.mux import Timing
from remuda.tunnel.server import AcceptRate, ServerSession
from remuda.tunnel.session_table import DialError, Key
from tests.lab.certificates import Authority, write
from tests.lab.pipes import pipe
from tests.unit.tunnel.conftest import WAIT, TunnelHarness, eventually


async def talk(harness: TunnelHarness, address: str, text: bytes = b"hello") -> bytes:
    reader, writer = await harness.open(address)
    writer.write(text)
    async with asyncio.timeout(WAIT):
        answer = await reader.readexactly(len(text))
    writer.close()
    return answer


async def test_stream_echoes_data_through_the_tunnel(harness: TunnelHarness) -> None:
    await harness.client()
    assert await talk(harness, await harness.service(pipe)) == b"hello"


async def test_megabytes_pass_unchanged_in_both_directions(harness: TunnelHarness) -> None:
    await harness.client()
    reader, writer = await harness.open(await harness.service(pipe))
    block = bytes(range(256)) * 1031  # chunks never fall on the same place of it
    sent, got = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        for _ in range(40):
            writer.write(block)
            sent.update(block)
            await writer.drain()

    async with asyncio.timeout(WAIT):
        sending = asyncio.create_task(send())
        left = 40 * len(block)
        while left:
            data = await reader.read(1 << 18)
            got.update(data)
            left -= len(data)
        await sending
    assert got.digest() == sent.digest()


async def test_concurrent_streams_all_complete(harness: TunnelHarness) -> None:
    await harness.client()
    address = await harness.service(pipe)
    texts = [str(number).encode() * 500 for number in range(60)]
    assert await asyncio.gather(*(talk(harness, address, text) for text in texts)) == texts
    session = harness.sessions.of("corral")[0]
    await eventually(lambda: not session.mux.streams)
    assert session.mux.opened == session.mux.closed == 60


async def test_service_close_arrives_after_its_last_byte(harness: TunnelHarness) -> None:
    async def farewell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 500_000)
        await writer.drain()
        writer.close()

    await harness.client()
    reader, _ = await harness.open(await harness.service(farewell))
    async with asyncio.timeout(WAIT):
        assert len(await reader.read()) == 500_000


async def test_server_side_close_reaches_the_service_after_the_last_byte(harness: TunnelHarness) -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.set_result(await reader.read())
        writer.close()

    await harness.client()
    _, writer = await harness.open(await harness.service(listen))
    writer.write(b"y" * 500_000)
    writer.close()
    async with asyncio.timeout(WAIT):
        assert await got == b"y" * 500_000


async def test_service_reset_raises_connection_reset_instead_of_eof(harness: TunnelHarness) -> None:
    async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    await harness.client()
    reader, writer = await harness.open(await harness.service(resets))
    writer.write(b"x")
    async with asyncio.timeout(WAIT):
        with pytest.raises(ConnectionResetError, match="reset"):
            await reader.read()


async def test_dial_to_closed_port_raises_dial_error(harness: TunnelHarness) -> None:
    await harness.client()
    with pytest.raises(DialError, match="connection refused"):
        await harness.open("127.0.0.1:1")
    assert await talk(harness, await harness.service(pipe)) == b"hello"


async def test_disallowed_address_is_not_dialed_and_session_stays_usable(harness: TunnelHarness) -> None:
    address = await harness.service(pipe)
    await harness.client(allow=(f"tcp/{address}",))
    for other in ("127.0.0.1:1", "localhost:80", "169.254.169.254:80"):
        with pytest.raises(DialError, match="connect not allowed"):
            await harness.open(other)
    assert await talk(harness, address) == b"hello"


async def test_stalled_reader_blocks_no_other_stream_and_loses_no_data(harness: TunnelHarness) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for _ in range(400):
                writer.write(b"z" * 65536)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    await harness.client()
    address = await harness.service(pipe)
    slow, writer = await harness.open(await harness.service(flood))
    session = harness.sessions.of("corral")[0]
    stream = next(iter(session.mux.streams.values()))
    limits = session.mux.limits
    await eventually(lambda: stream.held > limits.pause_above)
    for _ in range(20):
        assert await talk(harness, address, b"q" * 10_000) == b"q" * 10_000
    assert stream.held < limits.pause_above + 8 * 1024 * 1024
    async with asyncio.timeout(WAIT):
        assert len(await slow.read()) == 400 * 65536
    writer.close()


async def test_service_that_stops_reading_pauses_the_writer(harness: TunnelHarness) -> None:
    held: list[asyncio.StreamWriter] = []

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    await harness.client()
    _, writer = await harness.open(await harness.service(deaf))
    written = 0

    async def send() -> None:
        nonlocal written
        while written < 256 << 20:  # far more than all buffers on the way hold
            writer.write(b"w" * 65536)
            written += 65536
            await writer.drain()

    sending = asyncio.create_task(send())
    session = harness.sessions.of("corral")[0]
    stream = next(iter(session.mux.streams.values()))
    echo, before = await harness.service(pipe), -1
    while written != before:  # a pause may end once or twice: buffers of the system grow
        await eventually(lambda: stream.unsent >= session.mux.limits.unsent and stream._paused)
        before = written
        assert await talk(harness, echo) == b"hello"
    assert written < 256 << 20
    sending.cancel()
    writer.transport.abort()
    for each in held:
        each.transport.abort()


# Sessions


async def test_new_session_displaces_only_the_session_of_the_same_node(harness: TunnelHarness) -> None:
    await harness.client("one")
    await harness.client("two")
    first = {session.key.node: session for session in harness.sessions.of("corral")}
    harness.start(harness.settings("two"))
    await eventually(lambda: harness.sessions.last_end(Key("corral", "two")) is not None)
    ended = harness.sessions.last_end(Key("corral", "two"))
    assert ended is not None
    assert "displaced" in ended.reason
    assert first["one"] in harness.sessions.of("corral")
    assert harness.sessions.last_end(Key("corral", "one")) is None


async def test_dial_fails_over_to_another_node(harness: TunnelHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.tunnel.session_table._FAILED_SECONDS", WAIT)
    address = await harness.service(pipe)
    await harness.client("able", allow=(f"tcp/{address}",))
    await harness.client("unable", allow=("tcp/127.0.0.1:1",))
    assert harness.sessions.of("corral")[0].key.node == "unable"  # the newest is tried first
    for _ in range(3):
        assert await talk(harness, address) == b"hello"
    unable = next(session for session in harness.sessions.of("corral") if session.key.node == "unable")
    assert unable.mux.opened == 1  # and not again at once


async def test_dial_error_names_every_node_tried(harness: TunnelHarness) -> None:
    await harness.client("one", allow=())
    await harness.client("two")
    with pytest.raises(DialError, match=r"corral:two: .*refused; corral:one: connect not allowed"):
        await harness.open("127.0.0.1:1")


async def test_dial_without_session_uses_upstream_error_message(harness: TunnelHarness) -> None:
    with pytest.raises(DialError, match="failed to find Session for client corral"):
        await harness.open("127.0.0.1:1")


async def test_streams_end_with_the_session_and_report_its_reason(harness: TunnelHarness) -> None:
    client = await harness.client()
    reader, _ = await harness.open(await harness.service(pipe))
    await harness.stop(client)
    async with asyncio.timeout(WAIT):
        with pytest.raises(ConnectionResetError, match=r"tunnel disconnect: .*the client is stopping"):
            await reader.read()
    assert not harness.sessions.has("corral")
    assert [event.connected for event in harness.events] == [True, False]
    assert "the client is stopping" in harness.events[-1].reason


async def test_client_reconnects_after_server_restart_and_keeps_disconnect_reason(harness: TunnelHarness) -> None:
    address = await harness.service(pipe)
    client = await harness.client()
    await harness.stop_serving()
    await eventually(lambda: client.status.attempts > 0)
    assert not client.status.connected_to
    assert "refused" in client.status.last_disconnect_reason
    await harness.serve()
    await eventually(lambda: client.status.connected_to == harness.url)
    assert await talk(harness, address) == b"hello"
    assert client.status.last_disconnect_reason


async def test_silent_connection_loss_is_detected_and_client_reconnects(harness: TunnelHarness) -> None:
    """The client's thread stands still, as a process that was stopped or a link that carries nothing."""
    client = await harness.client()
    session = harness.sessions.of("corral")[0]
    assert isinstance(session, ServerSession)
    still, release = threading.Event(), threading.Event()
    await eventually(lambda: client._session)

    def stand_still() -> None:
        still.set()
        release.wait(WAIT)

    client._session._on_tick = stand_still
    try:
        await eventually(still.is_set)
        # Only now, and for this session alone: a client that is merely slow must not lose its tunnel.
        session.mux.timing = Timing(ping_every=0.2, heard_within=0.5, sent_within=WAIT)
        session._tick()
        await eventually(lambda: harness.sessions.last_end(Key("corral", "roan")) is not None)
        ended = harness.sessions.last_end(Key("corral", "roan"))
        assert ended is not None
        assert "received nothing" in ended.reason
        assert session.is_stalled(asyncio.get_running_loop().time())
    finally:
        release.set()
    await eventually(lambda: harness.sessions.has("corral"))


# Who may


async def test_wrong_token_is_rejected_with_upstream_message(harness: TunnelHarness) -> None:
    client, _ = harness.start(harness.settings(token="wrong"))
    await eventually(lambda: client.status.attempts > 0)
    assert client.status.last_disconnect_reason.endswith("401: failed authentication")


async def test_authorizer_rejection_message_reaches_the_client(harness: TunnelHarness) -> None:
    client, _ = harness.start(harness.settings("bad"))
    await eventually(lambda: client.status.attempts > 0)
    assert client.status.last_disconnect_reason.endswith("400: no such node")


async def test_non_websocket_request_is_authenticated_before_rejection(harness: TunnelHarness) -> None:
    trust = ssl.create_default_context(cadata=harness.authority.pem.decode())
    url = f"https://127.0.0.1:{harness.port}/v3/connect"
    async with aiohttp.ClientSession() as http:
        async with http.get(url, ssl=trust) as answer:
            assert (answer.status, await answer.text()) == (401, "failed authentication")
        async with http.get(url, ssl=trust, headers={"Authorization": "Bearer sesame"}) as answer:
            assert answer.status == 400
            assert "websocket" in await answer.text()


async def test_rate_limited_clients_get_503_and_reconnect_later(harness: TunnelHarness) -> None:
    rate = HaltedRate(per_second=1.0, at_once=1)
    await harness.stop_serving()
    await harness.serve(rate=rate)
    (first, first_told), (second, second_told) = (harness.start(harness.settings(node)) for node in ("one", "two"))

    def refused() -> list[str]:
        reasons = [status.last_disconnect_reason for status in (*first_told, *second_told)]
        return [reason for reason in reasons if "503" in reason]

    await eventually(refused)
    assert "retry later" in refused()[0]
    rate.now += 60.0
    await eventually(lambda: first.status.connected_to and second.status.connected_to)


class HaltedRate(AcceptRate):
    """Clock that the test moves: on a slow machine two clients may connect seconds apart."""

    now = 0.0

    def wait(self, now: float, chance: Callable[[], float] = random.random) -> int:
        return super().wait(self.now, chance)


async def test_client_rejects_server_certificate_from_unknown_ca(harness: TunnelHarness) -> None:
    settings = harness.settings()._replace(authorities=Authority("others").pem.decode())
    client, _ = harness.start(settings)
    await eventually(lambda: client.status.attempts > 0)
    assert "cannot verify its certificate" in client.status.last_disconnect_reason
    assert not harness.events


async def test_client_trusting_both_cas_reconnects_after_ca_rotation(harness: TunnelHarness) -> None:
    new = Authority("tunnels-2")
    client, _ = harness.start(
        harness.settings()._replace(authorities=harness.authority.pem.decode() + new.pem.decode())
    )
    await eventually(lambda: client.status.connected_to)
    await harness.stop_serving()
    await harness.serve(authority=new)
    await eventually(lambda: harness.sessions.has("corral") and client.status.connected_to)


async def test_client_falls_back_to_second_url_and_keeps_using_the_working_url(harness: TunnelHarness) -> None:
    settings = harness.settings()._replace(urls=("wss://127.0.0.1:1/v3/connect", harness.url))
    client, told = harness.start(settings)
    await eventually(lambda: client.status.connected_to == harness.url)
    harness.sessions.end_all("for a test")
    await eventually(lambda: sum(bool(status.connected_to) for status in told) == 2)
    assert sum(":1/" in status.last_disconnect_reason for status in told if not status.connected_to) == 1


async def test_client_reloads_settings_before_each_connect_round(harness: TunnelHarness) -> None:
    wrong, right = harness.settings(token="old"), harness.settings()
    current = [wrong]
    client, _ = harness.start(lambda: current[0])
    await eventually(lambda: client.status.attempts > 0)
    current[0] = right
    await eventually(lambda: client.status.connected_to)


async def test_server_denies_client_dials_unless_the_address_is_allowed(harness: TunnelHarness) -> None:
    address = await harness.service(pipe)
    for allow in (None, Allow([f"tcp/{address}"])):
        if allow is not None:
            await harness.stop_serving()
            await harness.serve(allow=allow)
        client = await harness.client()
        await eventually(lambda client=client: client.status.connected_to)
        session = client._session
        assert session is not None
        outcome = _asked_from_within(session, address)
        await eventually(lambda outcome=outcome: outcome)
        assert outcome == (["connect not allowed"] if allow is None else [b"hello"])
        await harness.stop(client)


def _asked_from_within(session, address: str) -> list:
    """A stream that the client opens, from its own thread; what came of it first."""
    outcome: list = []

    class Reader:
        def take(self, data) -> int:
            outcome.append(bytes(data))
            return len(data)

        def room(self) -> None: ...
        def opened(self) -> None: ...

        def ended(self, reason: str) -> None:
            outcome.append(reason)

    def once() -> None:
        session._on_tick = None
        stream = session.mux.open("tcp", address)
        stream.consumer = Reader()
        stream.write(b"hello")

    session._on_tick = once
    return outcome


# HTTP through it


async def test_http_and_https_work_through_tunnel_with_certificate_verification(harness: TunnelHarness) -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.scheme} {request.path} {len(await request.read())}")

    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{path:.*}", hello)
    runner = web.AppRunner(application)
    await runner.setup()
    downstream = Authority("downstream")
    certificate, key = downstream.server("127.0.0.1")
    files = write(harness.folder, inner_certificate=certificate, inner_key=key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files["inner_certificate"], files["inner_key"])
    plain, secure = web.TCPSite(runner, "127.0.0.1", 0), web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await plain.start()
    await secure.start()
    ports = [address[1] for address in runner.addresses]
    await harness.client()
    trust = ssl.create_default_context(cadata=downstream.pem.decode())
    try:
        connector = TunnelConnector(harness.sessions, "corral", tls=trust)
        async with aiohttp.ClientSession(connector=connector) as http:
            for scheme, port in zip(("http", "https"), ports, strict=True):
                for _ in range(3):
                    async with http.post(f"{scheme}://127.0.0.1:{port}/a", data=b"x" * 3_000_000) as answer:
                        assert await answer.text() == f"{scheme} /a 3000000"
            session = harness.sessions.of("corral")[0]
            assert session.mux.opened == 2  # connections are kept
            with pytest.raises(aiohttp.ClientConnectorError, match="refused"):
                await http.get("http://127.0.0.1:1/")
        stranger = ssl.create_default_context(cadata=Authority("strangers").pem.decode())
        async with aiohttp.ClientSession(connector=TunnelConnector(harness.sessions, "corral", tls=stranger)) as http:
            with pytest.raises(aiohttp.ClientConnectorCertificateError, match="unable to get local issuer"):
                await http.get(f"https://127.0.0.1:{ports[1]}/a")
    finally:
        await runner.cleanup()


# The loop the program runs on


@pytest.mark.parametrize(
    "story",
    [
        test_megabytes_pass_unchanged_in_both_directions,
        test_concurrent_streams_all_complete,
        test_stalled_reader_blocks_no_other_stream_and_loses_no_data,
        test_service_that_stops_reading_pauses_the_writer,
        test_streams_end_with_the_session_and_report_its_reason,
        test_client_reconnects_after_server_restart_and_keeps_disconnect_reason,
        test_http_and_https_work_through_tunnel_with_certificate_verification,
    ],
)
def test_tunnel_scenarios_pass_on_uvloop(story, tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = TunnelHarness(tmp_path)
        await harness.serve()
        try:
            await story(harness)
        finally:
            await harness.end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


# Counts


async def test_metrics_use_upstream_names_and_outlive_the_session(harness: TunnelHarness) -> None:
    registry = CollectorRegistry()
    registry.register(harness.sessions.metrics)
    client = await harness.client()
    address = await harness.service(pipe)
    await talk(harness, address, b"12345")
    await eventually(lambda: not harness.sessions.of("corral")[0].mux.streams)
    for _ in range(2):
        text = generate_latest(registry).decode()
        for name, value in (
            ("transmit_bytes", 5),
            ("receive_bytes", 5),
            ("add_connections", 1),
            ("remove_connections", 1),
        ):
            assert f'session_server_total_{name}{{clientkey="corral:roan"}} {value}.0' in text
        assert 'total_add_websocket_session{clientkey="corral:roan",peer="false"} 1.0' in text
        assert address not in text
        if harness.sessions.has("corral"):
            await harness.stop(client)
            await eventually(lambda: not harness.sessions.has("corral"))
    assert 'total_remove_websocket_session{clientkey="corral:roan",peer="false"} 1.0' in text


async def test_forget_removes_sessions_and_last_end_of_cluster(harness: TunnelHarness) -> None:
    await harness.client()
    harness.sessions.forget("corral")
    assert not harness.sessions.has("corral")
    assert harness.sessions.last_end(Key("corral", "roan")) is None


async def test_session_that_ended_is_freed_without_the_cycle_collector(harness: TunnelHarness) -> None:
    client = await harness.client()
    await talk(harness, await harness.service(pipe))
    gone = weakref.ref(harness.sessions.of("corral")[0].mux)
    gc.collect()
    gc.disable()
    try:
        await harness.stop(client)
        await eventually(lambda: not harness.sessions.has("corral"))
        await eventually(lambda: gone() is None)
    finally:
        gc.enable()
