from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from remuda.access.audit import Audit
from tests.lab.fake_workload_cluster import FakeWorkloadCluster, Seen, begin_chunks, chunk, whole
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.proxied import AuditLines, ProxiedCluster
from tests.unit.access.conftest import until_still

ID = "c-m-abc"
PODS = "/api/v1/namespaces/a/pods"


@pytest.fixture
async def session(proxied_cluster: ProxiedCluster) -> AsyncIterator[aiohttp.ClientSession]:
    """Ann's."""
    context = ssl.create_default_context(cadata=proxied_cluster.engine.pki.ca_certificate_pem.decode())
    headers = {"Authorization": f"Bearer {proxied_cluster.caller('ann', groups=('riders',))}"}
    made = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context), headers=headers, timeout=aiohttp.ClientTimeout(LIMIT_SECONDS)
    )
    async with made:
        yield made


@pytest.fixture(params=["direct", "tunnel"])
async def by(
    request: pytest.FixtureRequest, proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> str:
    """The cluster, reached by either way."""
    unused = "https://127.0.0.1:1"
    await proxied_cluster.cluster(ID, workload_cluster.config(unused if request.param == "tunnel" else ""))
    if request.param == "tunnel":
        await proxied_cluster.tunnel(ID)
    return request.param


@pytest.fixture
async def one(proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config())


def url(proxied_cluster: ProxiedCluster, rest: str, cluster: str = ID) -> URL:
    return URL(proxied_cluster.url(cluster) + rest, encoded=True)


async def status(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    found = json.loads(await answer.read())
    assert found["kind"] == "Status"
    assert found["code"] == answer.status
    assert answer.headers.getall("Audit-Id")
    return found


# Requests and answers


async def test_request_is_forwarded_with_impersonation_and_without_bearer_token(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    by: str,
    audit: AuditLines,
) -> None:
    rest = PODS + "/b%20c?fieldManager=x&a=%2F+b&a=2"
    headers = {"Content-Type": "application/merge-patch+json", "Accept-Encoding": "gzip", "Audit-Id": "mine-1"}
    async with session.patch(url(proxied_cluster, rest), data=b'{"a":1}', headers=headers) as answer:
        assert answer.status == 200
        assert await answer.read() == b'{"kind":"Fine"}'
        assert answer.headers.getall("Audit-Id") == ["mine-1"]
    (seen,) = workload_cluster.seen
    assert (seen.method, seen.target, seen.body) == ("PATCH", rest, b'{"a":1}')
    assert seen.all("impersonate-user") == ["ann"]
    assert seen.all("impersonate-group") == ["riders", "system:authenticated"]
    assert seen.all("content-type") == ["application/merge-patch+json"]
    assert seen.all("accept-encoding") == ["gzip"]
    assert seen.all("audit-id") == ["mine-1"]
    assert seen.all("host") == [workload_cluster.address]
    assert not {"authorization", "cookie", "x-forwarded-for"} & {name for name, _ in seen.headers}
    (line,) = audit.lines
    expected = {"user": "ann", "token": "token-of-ann", "cluster": ID, "verb": "patch", "path": PODS + "/b%20c"}
    assert {name: line[name] for name in expected} == expected
    assert (line["auditID"], line["code"], line["through"], line["bytes"]) == ("mine-1", 200, by, 15)
    assert "fieldManager" not in json.dumps(line)


async def test_cluster_connection_is_reused_between_requests(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, by: str
) -> None:
    for _ in range(10):
        async with session.get(url(proxied_cluster, PODS + "/b")) as answer:
            await answer.read()
    assert len(workload_cluster.seen) == 10
    assert workload_cluster.connections == 1


async def test_response_body_keeps_its_content_encoding(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, one: None
) -> None:
    packed = gzip.compress(b'{"kind":"PodList"}')

    async def answer_packed(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole(writer, packed, "200 OK", "Content-Encoding: gzip")

    workload_cluster.answer = answer_packed
    async with session.get(url(proxied_cluster, PODS)) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert await answer.json() == {"kind": "PodList"}


async def test_large_response_is_complete_and_slow_reader_gets_backpressure(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, by: str
) -> None:
    block, blocks = b"x" * 65536, 1024
    written = 0

    async def much(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await begin_chunks(writer, "text/plain")
        for _ in range(blocks):
            await chunk(writer, block)
            written += len(block)
        await chunk(writer, b"")

    workload_cluster.answer = much
    async with session.get(url(proxied_cluster, PODS + "/b/log?follow=true")) as answer:
        await until_still(lambda: written)  # nobody reads
        assert written < blocks * len(block)
        received = 0
        async for piece in answer.content.iter_any():
            received += len(piece)
    assert received == blocks * len(block)


async def test_403_from_cluster_is_returned_to_the_caller(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    one: None,
    audit: AuditLines,
) -> None:
    async def forbid(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole(writer, b'{"kind":"Status","code":403}', "403 Forbidden", "Retry-After: 7")

    workload_cluster.answer = forbid
    async with session.post(url(proxied_cluster, PODS), data=b"{}") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (403, "7")
        assert await answer.read() == b'{"kind":"Status","code":403}'
    assert audit.lines[0]["code"] == 403


async def test_401_from_cluster_is_returned_as_503(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, one: None
) -> None:
    async def who(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole(writer, b"{}", "401 Unauthorized", "WWW-Authenticate: Bearer")

    workload_cluster.answer = who
    async with session.get(url(proxied_cluster, PODS)) as answer:
        assert answer.status == 503
        assert "WWW-Authenticate" not in answer.headers
        assert "does not accept this manager's credentials" in (await status(answer))["message"]


# Who may


async def test_unauthenticated_and_unauthorized_callers_are_denied_and_audited(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    one: None,
    audit: AuditLines,
) -> None:
    async with session.get(url(proxied_cluster, PODS), headers={"Authorization": "Bearer forged"}) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        await status(answer)
    proxied_cluster.closed["ann", ID] = "no grant"
    async with session.get(url(proxied_cluster, PODS)) as answer:
        assert answer.status == 403
        told = (await status(answer))["message"]
        assert told == f'clusters.management.cattle.io "{ID}" is forbidden: User "ann" may not reach this cluster'
    assert workload_cluster.seen == []
    assert [(line["code"], line["user"], line["why"]) for line in audit.lines] == [
        (401, "", "Unauthorized"),
        (403, "ann", "no grant"),
    ]
    assert "forged" not in json.dumps(audit.lines)


async def test_token_in_cookie_is_not_accepted(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, one: None
) -> None:
    """A browser sends cookies along with whatever another site asks it to."""
    bearer = session.headers["Authorization"]
    cookies = f"R_SESS={bearer.removeprefix('Bearer ')}; Authorization={bearer}"
    async with session.get(url(proxied_cluster, PODS), headers={"Authorization": "", "Cookie": cookies}) as answer:
        assert answer.status == 401
    assert workload_cluster.seen == []


async def test_cluster_not_found_is_reported_only_to_authorized_callers(
    proxied_cluster: ProxiedCluster, session: aiohttp.ClientSession, one: None
) -> None:
    proxied_cluster.closed["ann", "c-m-other"] = "no grant"
    async with session.get(url(proxied_cluster, PODS, "c-m-other")) as answer:
        assert answer.status == 403
    async with session.get(url(proxied_cluster, PODS, "c-m-none")) as answer:
        assert (await status(answer))["message"] == 'clusters.management.cattle.io "c-m-none" not found'


async def raw(proxied_cluster: ProxiedCluster, request: bytes) -> bytes:
    """What a connection of a caller's own making is answered."""
    context = ssl.create_default_context(cadata=proxied_cluster.engine.pki.ca_certificate_pem.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied_cluster.engine.front.port, ssl=context)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            writer.write(request)
            return await reader.read(1 << 20)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["GET {path}/api HTTP/1.1", "Impersonate-User: system:admin"], 403),
        (["GET {path}/api HTTP/1.1", "impersonate-group: system:masters"], 403),
        (["GET {path}/api HTTP/1.1", "Connection: close, Impersonate-User", "Impersonate-User: root"], 403),
        (["GET {path}/../../../api HTTP/1.1"], 400),
        (["GET {path}/%2e%2e/%2e%2e/api HTTP/1.1"], 400),
        (["GET {path}//api HTTP/1.1"], 400),
        (["GET {path}/api%2fv1 HTTP/1.1"], 400),
        (["GET {path}/api;a=b HTTP/1.1"], 400),
        (["GET http://127.0.0.1{path}/api HTTP/1.1"], 400),
        (["POST {path}/api HTTP/1.1", "Content-Length: 1", "Content-Length: 2"], 400),
        (["POST {path}/api HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"], 400),
        (["POST {path}/api HTTP/1.1", "Content-Length: +1"], 400),
        (["POST {path}/api HTTP/1.1", "Transfer-Encoding: gzip"], 400),
        (["TRACE {path}/api HTTP/1.1"], 405),
    ],
)
async def test_malicious_requests_are_rejected_and_not_forwarded(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    one: None,
    audit: AuditLines,
    lines: list[str],
    code: int,
) -> None:
    head = [
        lines[0].format(path=f"/k8s/clusters/{ID}"),
        f"Authorization: Bearer {proxied_cluster.caller('ann')}",
        "Host: x",
    ]
    answer = await raw(proxied_cluster, "\r\n".join([*head, *lines[1:], "Connection: close", "", ""]).encode())
    assert answer.startswith(f"HTTP/1.1 {code} ".encode()), answer
    assert workload_cluster.seen == []
    if "Content-Length" in lines[-1] or "Transfer-Encoding" in lines[-1]:
        return  # no request at all: nobody has asked for anything
    (line,) = audit.lines
    assert (line["user"], line["code"]) == ("ann", code)
    assert line["why"]
    assert ("impersonatedUser" in line) == (lines[-1].lower().startswith("impersonate-"))


async def test_headers_named_in_connection_header_do_not_reach_the_cluster(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, one: None, audit: AuditLines
) -> None:
    head = [f"GET /k8s/clusters/{ID}/api HTTP/1.1", f"Authorization: Bearer {proxied_cluster.caller('ann')}", "Host: x"]
    smuggled = ["Connection: close, X-Hop, Impersonate-Group", "X-Hop: 1", "X-Remote-User: root", "X-End: 2", "", ""]
    assert (await raw(proxied_cluster, "\r\n".join([*head, *smuggled]).encode())).startswith(b"HTTP/1.1 200 ")
    (seen,) = workload_cluster.seen
    assert seen.all("x-end") == ["2"]
    assert seen.all("impersonate-group") == ["system:authenticated"]  # ours, whatever the caller's header names
    assert not {"x-hop", "x-remote-user"} & {name for name, _ in seen.headers}
    assert [(line["user"], line["code"]) for line in audit.lines] == [("ann", 200)]


async def test_h2c_upgrade_is_not_forwarded(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, one: None
) -> None:
    head = [f"GET /k8s/clusters/{ID}/api HTTP/1.1", f"Authorization: Bearer {proxied_cluster.caller('ann')}", "Host: x"]
    asking = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "", ""]
    context = ssl.create_default_context(cadata=proxied_cluster.engine.pki.ca_certificate_pem.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied_cluster.engine.front.port, ssl=context)
    async with asyncio.timeout(LIMIT_SECONDS):
        writer.write("\r\n".join([*head, *asking]).encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    (seen,) = workload_cluster.seen
    assert not {"upgrade", "http2-settings"} & {name for name, _ in seen.headers}


# What is taken back while it goes on


async def test_watch_ends_with_403_error_event_when_access_is_revoked(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    by: str,
    audit: AuditLines,
) -> None:
    workload_cluster.answer = watching
    async with session.get(url(proxied_cluster, PODS + "?watch=1")) as answer:
        assert json.loads(await answer.content.readline())["type"] == "ADDED"
        proxied_cluster.taken_back("ann", ID, "no grant any more")
        event = json.loads(await answer.content.readline())
        assert await answer.content.read() == b""
    assert (event["type"], event["object"]["code"]) == ("ERROR", 403)
    assert event["object"]["message"] == f"access to the cluster {ID} has ended"
    (line,) = audit.lines
    assert (line["user"], line["verb"], line["code"], line["why"]) == ("ann", "watch", 200, "no grant any more")
    await proxied_cluster.until(lambda: not proxied_cluster.proxy.active_requests.calls)


async def test_followed_log_is_aborted_when_access_is_revoked(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    one: None,
    audit: AuditLines,
) -> None:
    async def following(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await begin_chunks(writer, "text/plain")
        await chunk(writer, b"a line\n")
        await reader.read()

    workload_cluster.answer = following
    async with session.get(url(proxied_cluster, PODS + "/b/log?follow=true")) as answer:
        await answer.content.readline()
        proxied_cluster.taken_back("ann", ID, "no grant any more")
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()
    assert audit.lines[0]["why"] == "no grant any more"


async def test_pending_request_returns_403_when_access_is_revoked(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    one: None,
    audit: AuditLines,
) -> None:
    async def silent(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    workload_cluster.answer = silent
    asking = asyncio.create_task(session.get(url(proxied_cluster, PODS + "/b/log?follow=true")))
    await proxied_cluster.until(lambda: workload_cluster.seen)
    proxied_cluster.taken_back("ann", ID, "no grant any more")
    async with await asking as answer:
        assert (await status(answer))["message"] == f"access to the cluster {ID} has ended"
    assert (audit.lines[0]["code"], audit.lines[0]["why"]) == (403, "no grant any more")


async def test_revoked_access_does_not_end_watches_of_other_users(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, one: None
) -> None:
    workload_cluster.answer = watching
    bob = {"Authorization": f"Bearer {proxied_cluster.caller('bob')}"}
    async with (
        session.get(url(proxied_cluster, PODS + "?watch=1")) as ended,
        session.get(url(proxied_cluster, PODS + "?watch=1"), headers=bob) as goes_on,
    ):
        await ended.content.readline()
        await goes_on.content.readline()
        proxied_cluster.taken_back("ann", ID, "no grant any more")
        assert json.loads(await ended.content.readline())["type"] == "ERROR"
        assert [call.caller.name for call in proxied_cluster.proxy.active_requests.calls] == ["bob"]
        assert not any(call.why for call in proxied_cluster.proxy.active_requests.calls)


# Strangers in number


async def test_audit_lines_for_unauthenticated_requests_are_rate_limited(
    proxied_cluster: ProxiedCluster, session: aiohttp.ClientSession, one: None, audit: AuditLines
) -> None:
    proxied_cluster.proxy._audit = Audit(per_second=1e-6)  # no lines are added to the burst, however long this takes
    for _ in range(100):
        async with session.get(url(proxied_cluster, PODS), headers={"Authorization": "Bearer forged"}) as answer:
            assert answer.status == 401
    assert len(audit.lines) == 60
    async with session.get(
        url(proxied_cluster, PODS)
    ) as answer:  # somebody known is told of as ever, and so is what was not
        assert answer.status == 200
    unwritten = sum(line.get("unwritten", 0) for line in audit.lines)
    assert (audit.lines[-1]["user"], len(audit.lines) - 1 + unwritten) == ("ann", 100)


# What breaks


async def watching(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await begin_chunks(writer)
    await chunk(writer, b'{"type":"ADDED","object":{}}\n')
    await reader.read()


async def test_watch_ends_with_503_error_event_when_tunnel_is_lost(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    audit: AuditLines,
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config("https://127.0.0.1:1"))
    tunnel = await proxied_cluster.tunnel(ID)
    workload_cluster.answer = watching
    async with session.get(url(proxied_cluster, PODS + "?watch=1")) as answer:
        assert json.loads(await answer.content.readline())["type"] == "ADDED"
        tunnel.stop()
        event = json.loads(await answer.content.readline())
        assert await answer.content.read() == b""
    assert (event["type"], event["object"]["code"]) == ("ERROR", 503)
    assert f"the cluster {ID} has not been connected since " in event["object"]["message"]
    await proxied_cluster.until(lambda: audit.lines)
    assert audit.lines[0]["code"] == 200
    assert "has not been connected" in audit.lines[0]["why"]


async def test_watch_lost_within_an_event_is_aborted(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, one: None
) -> None:
    async def torn(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await begin_chunks(writer)
        await chunk(writer, b'{"type":"ADDED"}\n{"type"')
        writer.transport.abort()

    workload_cluster.answer = torn
    async with session.get(url(proxied_cluster, PODS + "?watch=1")) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([b"{\n", b'  "type": "ADDED",\n  "object": {}\n', b"}\n"], True),
        ([b"{\n", b'  "type": "ADDED",\n  "object": {\n  }\n'], False),
        ([b"{\n"], False),
        ([b'{"type":', b'"ADDED"', b"}", b"\n"], True),
        ([b'{"type":"ADDED"}'], False),
        ([b"\n"], False),
    ],
)
async def test_lost_watch_sends_error_event_only_between_complete_events(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    one: None,
    pieces: list[bytes],
    whole: bool,
) -> None:
    """Also of a server that indents its events."""

    async def torn(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await begin_chunks(writer)
        for piece in pieces:
            await chunk(writer, piece)
            await asyncio.sleep(0.01)
        writer.transport.abort()

    workload_cluster.answer = torn
    async with session.get(url(proxied_cluster, PODS + "?watch=1")) as answer:
        if whole:
            received = await answer.content.read()
            assert received.startswith(b"".join(pieces) + b'{"type":"ERROR"')
        else:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.read()


async def test_truncated_response_is_aborted_instead_of_completed(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    by: str,
    audit: AuditLines,
) -> None:
    async def torn(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await begin_chunks(writer, "text/plain")
        await chunk(writer, b"a line\n")
        writer.transport.abort()

    workload_cluster.answer = torn
    async with session.get(url(proxied_cluster, PODS + "/b/log")) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()
    await proxied_cluster.until(lambda: audit.lines)
    assert "lost while it answered" in audit.lines[0]["why"]


async def test_cluster_request_is_closed_when_the_caller_disconnects(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    by: str,
    audit: AuditLines,
) -> None:
    left = asyncio.Event()

    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await begin_chunks(writer)
        await chunk(writer, b"{}\n")
        await reader.read()
        left.set()

    workload_cluster.answer = wait
    answer = await session.get(url(proxied_cluster, PODS + "?watch=1"))
    await answer.content.readline()
    answer.close()
    async with asyncio.timeout(LIMIT_SECONDS):
        await left.wait()
    await proxied_cluster.until(lambda: audit.lines)
    assert audit.lines[0]["why"].startswith("the client disconnected")


async def test_request_to_never_connected_cluster_returns_503_with_reason(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    one: None,
    audit: AuditLines,
) -> None:
    await workload_cluster.stop()
    async with session.get(url(proxied_cluster, PODS)) as answer:
        assert answer.status == 503
        assert "Retry-After" not in answer.headers
        found = await status(answer)
        told = found["message"]
        assert found["details"]["retryAfterSeconds"] == 1
        assert answer.headers["Warning"] == f'299 - "{told}"'
    assert told.startswith(f"the cluster {ID} has not connected yet; cannot reach https://{workload_cluster.address}: ")
    assert audit.lines[0]["why"] == told


async def test_503_message_distinguishes_failed_api_server_from_lost_tunnel(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("remuda.access.connectivity._COMING_BACK_SECONDS", LIMIT_SECONDS)
    await proxied_cluster.cluster(ID, workload_cluster.config())
    tunnel = await proxied_cluster.tunnel(ID)
    await workload_cluster.stop()
    async with session.get(url(proxied_cluster, PODS)) as answer:
        told = (await status(answer))["message"]
    assert told.startswith(f"the cluster {ID} is connected, but the request through its tunnel failed: ")
    tunnel.stop()
    await proxied_cluster.until(lambda: not proxied_cluster.sessions.has(ID))
    async with session.get(url(proxied_cluster, PODS)) as answer:
        told = (await status(answer))["message"]
        assert answer.headers["Retry-After"] == "1"  # it was there a moment ago
    assert told.startswith(f"the cluster {ID} has not been connected since ")


async def test_write_with_lost_response_returns_503_without_retry_after(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, by: str
) -> None:
    async def remove_node(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    workload_cluster.answer = remove_node
    async with session.post(url(proxied_cluster, PODS), data=b"{}") as answer:
        assert answer.status == 503
        assert "Retry-After" not in answer.headers
        assert "the request may have taken effect" in (await status(answer))["message"]
    assert len(workload_cluster.seen) == 1


@pytest.mark.parametrize(("method", "times"), [("GET", 2), ("PUT", 1), ("DELETE", 1), ("PATCH", 1), ("POST", 1)])
async def test_only_get_is_retried_when_a_reused_connection_is_lost(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    session: aiohttp.ClientSession,
    one: None,
    method: str,
    times: int,
) -> None:
    async with session.get(url(proxied_cluster, PODS)) as answer:
        await answer.read()

    async def vanish_once(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(workload_cluster.seen) == 2:
            writer.transport.abort()
        else:
            await whole(writer, b"{}")

    workload_cluster.answer = vanish_once
    async with session.request(method, url(proxied_cluster, PODS + "/b")) as answer:
        assert answer.status == (200 if times == 2 else 503)
    assert [seen.method for seen in workload_cluster.seen] == ["GET", *[method] * times]


async def test_server_certificate_from_another_ca_returns_503(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, by: str
) -> None:
    config = workload_cluster.config()
    config["clusters"][0]["cluster"]["certificate-authority-data"] = proxied_cluster.kubeconfig_authority()
    key = proxied_cluster.clusters.find(ID)
    assert key is not None
    await proxied_cluster.credentials(key, config)
    async with session.get(url(proxied_cluster, PODS)) as answer:
        assert answer.status == 503
        assert "certificate is not trusted" in (await status(answer))["message"]
    assert workload_cluster.seen == []


async def test_unresponsive_cluster_hits_its_own_request_limit_with_429(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, one: None
) -> None:
    await proxied_cluster.cluster("c-m-other", workload_cluster.config())
    proxied_cluster.proxy.at_once = 3
    go_on = asyncio.Event()

    async def stand_still(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await whole(writer, b"{}")

    workload_cluster.answer = stand_still
    waiting = [asyncio.create_task(session.get(url(proxied_cluster, PODS))) for _ in range(3)]
    await proxied_cluster.until(lambda: len(workload_cluster.seen) == 3)
    async with session.get(url(proxied_cluster, PODS)) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        await status(answer)
    other = asyncio.create_task(session.get(url(proxied_cluster, PODS, "c-m-other")))
    await proxied_cluster.until(lambda: len(workload_cluster.seen) == 4)
    go_on.set()
    for task in (*waiting, other):
        async with await task as answer:
            assert answer.status == 200
    async with session.get(url(proxied_cluster, PODS)) as answer:
        assert answer.status == 200


async def test_request_body_above_the_limit_is_rejected_with_413(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, session: aiohttp.ClientSession, one: None
) -> None:
    async with session.post(url(proxied_cluster, PODS), data=bytes(4 * 1024 * 1024)) as answer:
        assert answer.status == 413
    assert workload_cluster.seen == []
