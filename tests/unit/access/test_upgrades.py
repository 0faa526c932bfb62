from __future__ import annotations

import asyncio
import ssl

import pytest

from remuda.access.upgrades import FarEnd, JoinedConnection
from tests.lab.fake_workload_cluster import Answer, FakeWorkloadCluster, Seen, whole
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.proxied import AuditLines, ProxiedCluster
from tests.unit.access.conftest import until_still

ID = "c-m-abc"
EXEC = "/api/v1/namespaces/a/pods/b/exec?command=sh&stdin=true"
SPDY, WEBSOCKET = "SPDY/3.1", "websocket"


@pytest.fixture(params=["direct", "tunnel"])
async def by(
    request: pytest.FixtureRequest, proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> str:
    await proxied_cluster.cluster(
        ID, workload_cluster.config("https://127.0.0.1:1" if request.param == "tunnel" else "")
    )
    if request.param == "tunnel":
        await proxied_cluster.tunnel(ID)
    return request.param


class Caller:
    """A connection on which an upgrade is asked for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(
        self, proxied_cluster: ProxiedCluster, method: str, *lines: str, early: bytes = b""
    ) -> tuple[str, list[str]]:
        head = [
            f"{method} /k8s/clusters/{ID}{EXEC} HTTP/1.1",
            "Host: manager",
            f"Authorization: Bearer {proxied_cluster.caller('ann')}",
            "Connection: Upgrade",
            *lines,
        ]
        self.writer.write("\r\n".join([*head, "", ""]).encode() + early)
        async with asyncio.timeout(LIMIT_SECONDS):
            answer = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *headers = answer[:-4].split("\r\n")
        return first, headers

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.reader.readexactly(size)

    async def end(self) -> bytes:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.reader.read()


@pytest.fixture
async def caller(proxied_cluster: ProxiedCluster) -> Caller:
    context = ssl.create_default_context(cadata=proxied_cluster.engine.pki.ca_certificate_pem.decode())
    return Caller(*await asyncio.open_connection("127.0.0.1", proxied_cluster.engine.front.port, ssl=context))


def echoing(protocol: str, *more: str, greeting: bytes = b"") -> Answer:
    async def answer(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", f"Upgrade: {protocol}", *more]
        writer.write("\r\n".join([*lines, "", ""]).encode() + greeting)
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    return answer


@pytest.mark.parametrize(
    ("method", "protocol", "asked", "told"),
    [
        ("POST", SPDY, "X-Stream-Protocol-Version: v4.channel.k8s.io", "X-Stream-Protocol-Version: v4.channel.k8s.io"),
        ("GET", WEBSOCKET, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZ"),
    ],
)
async def test_upgraded_connection_relays_bytes_unchanged_in_both_directions(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    caller: Caller,
    by: str,
    audit: AuditLines,
    method: str,
    protocol: str,
    asked: str,
    told: str,
) -> None:
    workload_cluster.answer = echoing(protocol, told, greeting=b"hello")
    first, headers = await caller.ask(proxied_cluster, method, f"Upgrade: {protocol}", asked, early=b"early")
    assert first == "HTTP/1.1 101 Switching Protocols"
    assert {f"Upgrade: {protocol}", "Connection: Upgrade", told} <= set(headers)
    assert await caller.read(10) == b"helloearly"
    every_byte = bytes(range(256)) * 4096
    caller.writer.write(every_byte)
    assert await caller.read(len(every_byte)) == every_byte
    (seen,) = workload_cluster.seen
    assert (seen.method, seen.target) == (method, EXEC)
    assert seen.all("upgrade") == [protocol]
    assert seen.all("connection") == ["Upgrade"]
    assert seen.all(asked.partition(":")[0].lower()) == [asked.partition(": ")[2]]
    assert seen.all("impersonate-user") == ["ann"]
    assert not seen.all("authorization")
    caller.writer.close()
    await proxied_cluster.until(lambda: audit.lines)
    (line,) = audit.lines
    assert (line["code"], line["verb"], line["through"]) == (101, {"POST": "create", "GET": "get"}[method], by)
    assert line["bytes"] == 10 + len(every_byte)


async def test_pending_data_reaches_the_caller_when_the_cluster_closes(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str
) -> None:
    async def farewell(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        writer.write(b"x" * 1_000_000)
        await writer.drain()
        writer.close()

    workload_cluster.answer = farewell
    await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    assert await caller.end() == b"x" * 1_000_000


async def test_pending_data_reaches_the_cluster_when_the_caller_closes(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str
) -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        got.set_result(await reader.read())

    workload_cluster.answer = take
    await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    caller.writer.write(b"y" * 1_000_000)
    caller.writer.close()
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await got == b"y" * 1_000_000


async def test_slow_caller_applies_backpressure_to_the_cluster(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str
) -> None:
    written = 0

    async def flood(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        while written < 64_000_000:
            writer.write(bytes(64_000))
            await writer.drain()
            written += 64_000
        writer.close()

    workload_cluster.answer = flood
    await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    await until_still(lambda: written)
    assert written < 64_000_000
    assert len(await caller.end()) == 64_000_000


async def test_slow_cluster_applies_backpressure_to_the_caller(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str
) -> None:
    go_on, taken = asyncio.Event(), 0

    async def take_later(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        await go_on.wait()
        while data := await reader.read(65536):
            taken += len(data)

    workload_cluster.answer = take_later
    await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    written = 0

    async def flood() -> None:
        nonlocal written
        while written < 64_000_000:
            caller.writer.write(bytes(64_000))
            await caller.writer.drain()
            written += 64_000
        caller.writer.close()

    flooding = asyncio.create_task(flood())
    await until_still(lambda: written)
    assert written < 64_000_000
    go_on.set()
    await flooding
    await proxied_cluster.until(lambda: taken == 64_000_000)


async def test_data_sent_before_upgrade_response_is_delivered_after_upgrade(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str
) -> None:
    agree = asyncio.Event()

    async def slowly(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree.wait()
        await echoing(SPDY)(seen, reader, writer)

    workload_cluster.answer = slowly
    asking = asyncio.create_task(caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}", early=b"1"))
    await proxied_cluster.until(lambda: workload_cluster.seen)
    for piece in (b"2", b"3"):
        caller.writer.write(piece)
        await asyncio.sleep(0.05)  # a piece of its own; that they may come together changes nothing
    agree.set()
    await asking
    assert await caller.read(3) == b"123"


async def test_caller_sending_too_much_before_upgrade_is_disconnected(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config())

    async def never(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    workload_cluster.answer = never
    asking = asyncio.create_task(caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}"))
    await proxied_cluster.until(lambda: workload_cluster.seen)
    caller.writer.write(bytes(1_000_000))
    with pytest.raises((OSError, EOFError)):
        await asking


async def test_lost_tunnel_closes_upgraded_connection(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config("https://127.0.0.1:1"))
    await proxied_cluster.tunnel(ID)
    workload_cluster.answer = echoing(SPDY)
    await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    caller.writer.write(b"ping")
    assert await caller.read(4) == b"ping"
    proxied_cluster.cut(ID)
    assert await caller.end() == b""


async def test_rejected_upgrade_is_relayed_and_connection_stays_open(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str, audit: AuditLines
) -> None:
    async def refuse(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole(writer, b'{"kind":"Status"}', "404 Not Found")

    workload_cluster.answer = refuse
    for number in (1, 2):
        first, headers = await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}", "Content-Length: 0")
        assert first == "HTTP/1.1 404 Not Found"
        assert "Content-Length: 17" in headers
        assert await caller.read(17) == b'{"kind":"Status"}'
        assert [line["code"] for line in audit.lines] == [404] * number


async def test_upgrade_to_unreachable_cluster_returns_503_with_warning(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str
) -> None:
    await workload_cluster.stop()
    first, headers = await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}", "Connection: close")
    assert first == "HTTP/1.1 503 Service Unavailable"
    assert any(f"the cluster {ID} " in line for line in headers if line.startswith("Warning: "))


async def test_upgrade_with_server_certificate_from_another_ca_returns_503(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str
) -> None:
    config = workload_cluster.config()
    config["clusters"][0]["cluster"]["certificate-authority-data"] = proxied_cluster.kubeconfig_authority()
    key = proxied_cluster.clusters.find(ID)
    assert key is not None
    await proxied_cluster.credentials(key, config)
    first, headers = await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    assert first == "HTTP/1.1 503 Service Unavailable"
    assert any("certificate is not trusted" in line for line in headers)
    assert workload_cluster.seen == []


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 2000 What\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000]
)
async def test_malformed_upgrade_response_returns_503(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, answer: bytes
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config())

    async def babble(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read()

    workload_cluster.answer = babble
    first, _ = await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    assert first == "HTTP/1.1 503 Service Unavailable"


async def test_upgraded_connection_is_closed_on_both_sides_when_access_is_revoked(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, caller: Caller, by: str, audit: AuditLines
) -> None:
    left = asyncio.Event()
    echo = echoing(SPDY, greeting=b"hello")

    async def answer(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await echo(seen, reader, writer)
        finally:
            left.set()

    workload_cluster.answer = answer
    await caller.ask(proxied_cluster, "POST", f"Upgrade: {SPDY}")
    assert await caller.read(5) == b"hello"
    proxied_cluster.taken_back("ann", ID, "the token was revoked")
    async with asyncio.timeout(LIMIT_SECONDS):
        try:
            assert await caller.reader.read() == b""
        except (ConnectionError, ssl.SSLError):
            pass  # an end in the middle of what was said, and it is told so
        await left.wait()
    await proxied_cluster.until(lambda: audit.lines)
    (line,) = audit.lines
    assert (line["user"], line["code"], line["why"]) == ("ann", 101, "the token was revoked")
    assert not proxied_cluster.proxy.active_requests.calls


class Full(asyncio.Transport):
    """Takes whatever is written, and says at once that it is too much."""

    def __init__(self, user: JoinedConnection) -> None:
        super().__init__()
        self.user = user
        self.reading = True
        user.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: object) -> None:
        self.user.pause_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False


async def test_caller_blocked_on_first_bytes_pauses_reading_from_the_cluster() -> None:
    far, near = FarEnd(), JoinedConnection()
    cluster, _ = Full(far), Full(near)
    far.data_received(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\nhello")
    assert (await far.answered).status == 101
    far.join(near)
    assert not cluster.reading
    near.resume_writing()
    assert cluster.reading
