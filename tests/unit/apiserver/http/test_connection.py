"""The connection over real sockets: keep-alive, order, limits, slow and hostile clients, endings."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.apiserver.http.limits import HttpLimits
from remuda.kube.errors import StatusError
from remuda.kube.web import MAX_BODY, Request, Response, Result, Sink, Stream, Upgrade, header_block
from tests.lab.limits import LIMIT_SECONDS

from .fakes import connect, serving, until

GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"


def echo(request: Request) -> Result:
    return Response(200, f"{request.method} {request.path}".encode())


async def echo_body(request: Request) -> Result:
    try:
        return Response(200, await request.body(1000))
    except StatusError as error:
        return Response(error.code, error.message.encode())


async def test_keep_alive_connection_serves_sequential_requests() -> None:
    async with serving(echo) as server:
        client = await connect(server.port)
        for path in ("/a", "/b%20c", "/d?x=1"):
            answer = await client.ask("GET", path)
            assert answer.status == 200
            assert answer.header("date")
        assert (await client.ask("GET", "/b%20c")).body == b"GET /b c"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def slow(request: Request) -> Result:
        await asyncio.sleep(0.05 if request.path == "/0" else 0)
        return Response(200, request.path.encode())

    async with serving(slow) as server:
        client = await connect(server.port)
        client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % n for n in range(20)))
        assert [(await client.read_answer()).body for _ in range(20)] == [b"/%d" % n for n in range(20)]


async def test_client_exceeding_pipeline_limit_is_rejected() -> None:
    async with serving(echo, HttpLimits(pipelined=10, linger=0.1)) as server:
        client = await connect(server.port)
        client.send(GET * 500)
        answer = await client.read_answer()
        assert answer.status == 400
        assert await client.is_closed()


async def test_connection_close_is_honoured() -> None:
    async with serving(echo) as server:
        client = await connect(server.port)
        answer = await client.ask("GET", "/", Connection="close")
        assert answer.header("connection") == "close"
        assert await client.is_closed()


async def test_head_response_has_content_length_but_no_body() -> None:
    async with serving(echo) as server:
        client = await connect(server.port)
        answer = await client.ask("HEAD", "/abc")
        assert answer.header("content-length") == str(len("HEAD /abc"))
        assert (await client.ask("GET", "/z")).body == b"GET /z"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(300)) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: 1\r\n" * 300 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 70_000, 431),
    ],
)
async def test_malformed_request_gets_error_status_and_connection_close(sent: bytes, status: int) -> None:
    async with serving(echo_body, HttpLimits(linger=0.1)) as server:
        client = await connect(server.port)
        client.send(sent)
        assert (await client.read_answer()).status == status
        assert await client.is_closed()
        assert not server.connections


async def test_request_body_is_read_whole_and_chunked() -> None:
    async with serving(echo_body) as server:
        client = await connect(server.port)
        assert (await client.ask("POST", "/", b"hello")).body == b"hello"
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
        await asyncio.sleep(0.02)
        client.send(b"3\r\ncde\r\n0\r\n\r\n")
        assert (await client.read_answer()).body == b"abcde"


async def test_content_length_above_limit_is_rejected_before_body_is_sent() -> None:
    async with serving(echo_body, HttpLimits(linger=0.1)) as server:
        client = await connect(server.port)
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
        answer = await client.read_answer()
        assert answer.status == 413
        assert answer.body == b"Request entity too large: limit is 1000"
        assert await client.is_closed()


async def test_chunked_body_above_limit_is_rejected_with_413() -> None:
    async with serving(echo_body, HttpLimits(linger=0.1)) as server:
        client = await connect(server.port)
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + b"x" * 0x800 + b"\r\n")
        assert (await client.read_answer()).status == 413
        assert await client.is_closed()


async def test_unread_request_body_is_not_buffered_beyond_limit() -> None:
    held: list[Request] = []

    async def patient(request: Request) -> Result:
        held.append(request)
        while request.received < sent:  # with input unread at its end, a connection is reset and its answer is lost
            await asyncio.sleep(0.001)
        return Response(200)

    sent = 8 * 0x100000
    async with serving(patient, HttpLimits(linger=0.1)) as server:
        client = await connect(server.port)
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(8):
            client.send(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
        await client.read_answer()
        assert sum(map(len, held[0].chunks)) <= MAX_BODY
        assert held[0].received > MAX_BODY


async def test_100_continue_is_sent_when_handler_reads_body() -> None:
    async with serving(echo_body) as server:
        client = await connect(server.port)
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.read_answer()).status == 100
        client.send(b"hi")
        assert (await client.read_answer()).body == b"hi"


async def test_rejected_request_with_short_body_keeps_the_connection() -> None:
    async with serving(lambda r: Response(403)) as server:
        client = await connect(server.port)
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
        assert (await client.read_answer()).status == 403
        client.send(b"12345")
        assert (await client.ask("GET", "/")).status == 403


@pytest.mark.parametrize(
    ("sent", "limits"),
    [
        (b"", HttpLimits(idle_timeout=0.05)),
        (b"", HttpLimits(crowd=1, crowded_idle_timeout=0.05)),
        (b"GET / HT", HttpLimits(head_timeout=0.05)),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX", HttpLimits(head_timeout=0.05)),
    ],
)
async def test_slow_and_idle_clients_are_dropped(sent: bytes, limits: HttpLimits) -> None:
    async with serving(echo, limits) as server:
        client = await connect(server.port)
        client.send(sent)
        assert await client.is_closed()
        assert not server.connections


async def test_incomplete_body_times_out_with_408() -> None:
    cancelled = asyncio.Event()

    async def handler(request: Request) -> Result:
        try:
            return Response(200, await request.body())
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(handler, HttpLimits(body_timeout=0.05, linger=0.05)) as server:
        client = await connect(server.port)
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12")
        assert (await client.read_answer()).status == 408
        assert await client.is_closed()
        assert cancelled.is_set()


async def test_slow_handler_times_out_with_504() -> None:
    async def forever(request: Request) -> Result:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(forever, HttpLimits(request_timeout=0.05)) as server:
        client = await connect(server.port)
        assert (await client.ask("GET", "/")).status == 504
        assert await client.is_closed()


async def test_failing_handler_returns_500_without_details_and_logs_error(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: Request) -> Result:
        raise RuntimeError("secret")

    async def broken_later(request: Request) -> Result:
        raise RuntimeError("secret")

    for handler in (broken, broken_later):
        caplog.clear()
        async with serving(handler) as server:
            answer = await (await connect(server.port)).ask("GET", "/")
            assert answer.status == 500
            assert b"secret" not in answer.body
        assert "secret" in caplog.text


async def test_connections_above_the_limit_are_closed() -> None:
    async with serving(echo, HttpLimits(connections=2)) as server:
        first, second = await connect(server.port), await connect(server.port)
        assert (await first.ask("GET", "/")).status == 200
        assert (await second.ask("GET", "/")).status == 200
        assert await (await connect(server.port)).is_closed()


async def test_handler_is_cancelled_when_the_client_leaves() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(request: Request) -> Result:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with serving(waits) as server:
        client = await connect(server.port)
        client.send(GET)
        await asyncio.wait_for(started.wait(), LIMIT_SECONDS)
        client.close()
        await asyncio.wait_for(cancelled.wait(), LIMIT_SECONDS)


# -- streams -----------------------------------------------------------------------------------------------------


def counting(pieces: int, size: int = 4) -> Stream:
    async def produce(sink: Sink) -> None:
        for n in range(pieces):
            sink.write(str(n % 10).encode() * size)
            await sink.drain()

    return Stream(produce, header_block([("Content-Type", "text/plain")]))


async def test_stream_is_chunked_and_connection_stays_open() -> None:
    async with serving(lambda r: counting(3)) as server:
        client = await connect(server.port)
        for _ in range(2):
            answer = await client.ask("GET", "/")
            assert answer.body == b"000011112222"
            assert answer.header("content-type") == "text/plain"


async def test_http_1_0_stream_is_unchunked_and_closes_connection() -> None:
    async with serving(lambda r: counting(3)) as server:
        client = await connect(server.port)
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        _, headers = await client.read_head()
        assert "chunked" not in dict(headers).values()
        assert await client.reader.read() == b"000011112222"


async def test_stream_applies_backpressure_and_drops_stalled_reader() -> None:
    written = 0

    async def produce(sink: Sink) -> None:
        nonlocal written
        while True:
            sink.write(b"x" * 65536)
            written += 65536
            await sink.drain()

    async with serving(lambda r: Stream(produce), HttpLimits(write_timeout=0.3)) as server:
        client = await connect(server.port)
        client.send(GET)
        await until(lambda: written)
        await until(lambda: not server.connections)
        assert written < 32 * 1024 * 1024  # what kernel buffers hold


async def test_stream_ends_cleanly_after_its_time_limit() -> None:
    async def forever(sink: Sink) -> None:
        sink.write(b"one")
        await asyncio.Event().wait()

    async with serving(lambda r: Stream(forever, ends_after=0.1)) as server:
        client = await connect(server.port)
        assert (await client.ask("GET", "/")).body == b"one"
        assert (await client.ask("GET", "/")).body == b"one"


async def test_failed_stream_is_aborted_without_final_chunk() -> None:
    async def fails(sink: Sink) -> None:
        sink.write(b"part")
        raise RuntimeError("broken")

    async with serving(lambda r: Stream(fails)) as server:
        client = await connect(server.port)
        client.send(GET)
        await client.read_head()
        assert await client.read_chunk() == b"part"
        assert await client.is_closed()


async def test_server_stop_ends_streams_cleanly_and_finishes_requests() -> None:
    released = asyncio.Event()
    begun: list[str] = []

    async def slow(request: Request) -> Result:
        begun.append("request")
        await released.wait()
        return Response(200, b"done")

    async def forever(sink: Sink) -> None:
        sink.write(b"event")
        begun.append("stream")
        await asyncio.Event().wait()

    async with serving(lambda r: Stream(forever) if r.path == "/watch" else slow(r)) as server:
        watching, working, idle = [await connect(server.port) for _ in range(3)]
        watching.send(GET.replace(b"/x", b"/watch"))
        working.send(GET)
        await until(lambda: len(begun) == 2 and len(server.connections) == 3)
        stopping = asyncio.create_task(server.stop(LIMIT_SECONDS))
        assert (await watching.read_answer()).body == b"event"
        assert await idle.is_closed()
        released.set()
        answer = await working.read_answer()
        assert (answer.body, answer.header("connection")) == (b"done", "close")
        await asyncio.wait_for(stopping, LIMIT_SECONDS)
        with pytest.raises(OSError):
            await connect(server.port)


async def test_server_stop_waits_no_longer_than_grace_period() -> None:
    started = asyncio.Event()

    async def forever(request: Request) -> Result:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(forever) as server:
        client = await connect(server.port)
        client.send(GET)
        await asyncio.wait_for(started.wait(), LIMIT_SECONDS)
        await asyncio.wait_for(server.stop(0.05), LIMIT_SECONDS)
        assert await client.is_closed()


# -- upgrades ----------------------------------------------------------------------------------------------------

UPGRADE = b"GET /up HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"


class Shouting(asyncio.Protocol):
    def __init__(self, transport: asyncio.Transport, early: bytes) -> None:
        self.transport = transport
        self.data_received(early)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


async def test_upgrade_hands_over_connection_with_early_data() -> None:
    def handler(request: Request) -> Result:
        return Upgrade(lambda t, early: Shouting(t, early), header_block([("Upgrade", "shout")]))  # type: ignore[arg-type]

    async with serving(handler) as server:
        client = await connect(server.port)
        client.send(UPGRADE + b"early ")
        answer = await client.read_answer()
        assert (answer.status, answer.header("upgrade")) == (101, "shout")
        client.send(b"late")
        assert await client.reader.readexactly(10) == b"EARLY LATE"


async def test_declined_upgrade_continues_as_http() -> None:
    async with serving(echo) as server:
        client = await connect(server.port)
        client.send(UPGRADE + GET)
        assert (await client.read_answer()).body == b"GET /up"
        assert (await client.read_answer()).body == b"GET /x"
        assert (await client.ask("GET", "/again")).body == b"GET /again"


# -- anything ----------------------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            GET,
            UPGRADE,
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"1\r\na\r\n",
            b"0\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
            b"Expect: 100-continue\r\n",
            b"\r\n",
            b"\x00\xff",
        ]
    ),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=8), st.randoms(use_true_random=False))
def test_arbitrary_bytes_do_not_crash_or_hang_the_server(pieces: list[bytes], rng: random.Random) -> None:
    """Sent in pieces cut anywhere; afterwards the server still serves others and has dropped this one."""

    async def handler(request: Request) -> Result:
        await request.body(100)
        return Response(200, b"ok")

    async def scenario() -> None:
        records: list[logging.LogRecord] = []
        watcher = logging.Handler()
        watcher.emit = records.append  # type: ignore[method-assign]
        logging.getLogger("remuda.apiserver.http").addHandler(watcher)
        async with serving(handler) as server:
            client = await connect(server.port)
            data = b"".join(pieces)
            while data and not client.writer.is_closing():  # the server may have hung up on what came before
                cut = rng.randint(1, len(data))
                client.send(data[:cut])
                data = data[cut:]
                await asyncio.sleep(0)
                if rng.random() < 0.3:  # any deadline may pass at any moment
                    for connection in list(server.connections):
                        connection.expire(server.loop.time())
            other = await connect(server.port)
            assert (await other.ask("GET", "/")).status == 200
            client.close()
            other.close()
            await asyncio.sleep(0)
        assert not server.connections
        logging.getLogger("remuda.apiserver.http").removeHandler(watcher)
        assert not [r for r in records if r.exc_info and not isinstance(r.exc_info[1], StatusError)]

    uvloop.run(scenario())
