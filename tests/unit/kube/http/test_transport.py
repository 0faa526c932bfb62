"""What the network and the servers on it do to a client, done by a server that obeys the test."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from remuda.kube.client import Change, Target, list_all
from remuda.kube.errors import StatusError, Unreachable, too_many_requests
from remuda.kube.http import HttpClient
from remuda.kube.http.transport import plainly
from remuda.kube.kubeconfig import ClientConfig, ExecPlugin, Impersonation
from remuda.kube.leadership import permit
from tests.lab.certificates import Authority, write
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.pipes import pipe

from .rawserver import Act, Conversation, RawServer, answering

PODS = Target("v1", "pods")
POD = b'{"kind":"Pod"}'
OK = answering(200, POD + b"\n")
BUSY = answering(429, b"Too many requests, please try again later.\n", Retry_After="0")


@asynccontextmanager
async def served(*acts: Act, options: dict[str, Any] | None = None, **access: Any) -> AsyncIterator[tuple[Any, Any]]:
    async with RawServer(*acts) as server:
        client = HttpClient(ClientConfig(server=server.url, **access), **(options or {}))
        try:
            yield client, server
        finally:
            await client.close()


async def refusal(attempt: Awaitable[object]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await attempt
    return caught.value


async def changes(client: HttpClient, **options: Any) -> list[Change]:
    return [change async for change in client.watch(PODS, **options)]


class TestRequests:
    async def test_sequential_requests_reuse_one_connection(self) -> None:
        async with served(OK) as (client, server):
            for _ in range(5):
                assert await client.get(PODS, "a", "b") == POD
            assert server.connections == 1

    async def test_requests_carry_token_impersonation_and_user_agent(self) -> None:
        wanted = Impersonation(user="jane", groups=("a", "b"))
        async with served(OK, token="t", impersonate=wanted) as (client, server):
            await client.get(PODS, "a", "b")
            headers = server.seen[0].headers
        assert ("authorization", "Bearer t") in headers
        assert [value for name, value in headers if name == "impersonate-group"] == ["a", "b"]
        assert server.seen[0].header("user-agent").startswith("remuda/")
        assert server.seen[0].header("accept-encoding") == "gzip"

    async def test_request_paths_queries_and_delete_options_are_encoded(self) -> None:
        machines = Target("cluster.x-k8s.io/v1beta2", "machines")
        async with served(OK, answering(200, b'{"items":[]}'), OK) as (client, server):
            await client.get(machines, "a", "b", subresource="status")
            await client.list(machines, label_selector="a in (b,c)", limit=5)
            await client.delete(Target("v1", "namespaces"), "", "a:b/c", uid="7", propagation="Foreground")
        root = "/apis/cluster.x-k8s.io/v1beta2"
        assert [said.target for said in server.seen] == [
            f"{root}/namespaces/a/machines/b/status",
            f"{root}/machines?labelSelector=a+in+%28b%2Cc%29&limit=5",
            "/api/v1/namespaces/a:b%2Fc",
        ]
        assert msgspec.json.decode(server.seen[2].body) == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "7"},
            "propagationPolicy": "Foreground",
        }

    async def test_server_url_path_prefixes_request_path(self) -> None:
        async with RawServer(OK) as server:
            client = HttpClient(ClientConfig(server=f"{server.url}/k8s/clusters/c"))
            await client.raw_get("/version")
            await client.close()
        assert server.seen[0].target == "/k8s/clusters/c/version"

    @pytest.mark.parametrize(
        ("kind", "media_type"),
        [
            ("json", "application/json-patch+json"),
            ("merge", "application/merge-patch+json"),
            ("strategic", "application/strategic-merge-patch+json"),
            ("apply", "application/apply-patch+yaml"),
        ],
    )
    async def test_patch_request_has_content_type_and_options_of_its_kind(self, kind: Any, media_type: str) -> None:
        async with served(OK) as (client, server):
            await client.patch(PODS, "a", "b", {}, kind=kind, force=True, dry_run=True)
        assert server.seen[0].header("content-type") == media_type
        options = "fieldManager=remuda&dryRun=All"
        assert server.seen[0].target.partition("?")[2] == options + ("&force=true" if kind == "apply" else "")

    @pytest.mark.parametrize("name", ["", ".", ".."])
    async def test_empty_or_dot_object_name_is_rejected(self, name: str) -> None:
        async with served(OK) as (client, server):
            for attempt in (client.get, client.delete):
                assert (await refusal(attempt(PODS, "a", name))).code == 400
            assert (await refusal(client.update(PODS, "a", name, {}))).code == 400
            assert (await refusal(client.patch(PODS, "a", name, {}))).code == 400
        assert not server.seen

    async def test_gzip_response_is_decompressed(self) -> None:
        async with served(answering(200, gzip.compress(POD), Content_Encoding="gzip")) as (client, _):
            assert await client.get(PODS, "a", "b") == POD

    async def test_response_above_size_limit_is_rejected_after_decompression(self) -> None:
        bomb = answering(200, gzip.compress(bytes(64 << 20)), Content_Encoding="gzip")
        plain = answering(200, bytes(2 << 20))
        error = answering(500, bytes(2 << 20))
        async with served(bomb, plain, error, OK, options={"most_bytes": 1 << 20}) as (client, _):
            for _ in range(3):
                refused = await refusal(client.get(PODS, "a", "b"))
                assert refused.message.endswith(f"is larger than {1 << 20} bytes")
            assert await client.get(PODS, "a", "b") == POD

    async def test_redirects_are_not_followed(self) -> None:
        async with served(answering(302, b"", Location="http://127.0.0.1:1/"), token="t") as (client, server):
            assert (await refusal(client.get(PODS, "a", "b"))).code == 302
            assert len(server.seen) == 1

    async def test_request_observer_receives_method_and_code(self) -> None:
        seen: list[tuple[str, str]] = []
        observe = lambda method, code, seconds: seen.append((method, code))  # noqa: E731
        cut: Act = _cut
        async with served(OK, answering(404), cut, options={"observe": observe}) as (client, _):
            await client.get(PODS, "a", "b")
            await refusal(client.delete(PODS, "a", "b"))
            await refusal(client.create(PODS, "a", {}))
        assert seen == [("GET", "200"), ("DELETE", "404"), ("POST", "<error>")]

    async def test_server_warning_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        async with served(answering(200, POD, Warning=r'299 - "v1 is \"old\" \\"')) as (client, _):
            await client.get(PODS, "a", "b")
            await client.get(PODS, "a", "b")
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ['v1 is "old" \\']

    async def test_concurrent_requests_share_limited_connections(self) -> None:
        async with served(OK) as (client, server):
            await asyncio.gather(*(client.get(PODS, "a", "b") for _ in range(200)))
            assert len(server.seen) == 200
            assert server.connections <= 64


async def _cut(said: Conversation) -> None:
    said.cut()


async def _hang(said: Conversation) -> None:
    await said.say_nothing()


class TestErrors:
    async def test_status_response_becomes_status_error(self) -> None:
        status = too_many_requests("slowly", 0).status() | {"code": 409, "reason": "Conflict"}
        async with served(answering(409, msgspec.json.encode(status))) as (client, _):
            error = await refusal(client.get(PODS, "a", "b"))
        assert (error.code, error.reason, error.message) == (409, "Conflict", "slowly")
        assert error.details == {"retryAfterSeconds": 0}

    @pytest.mark.parametrize(
        ("code", "body", "reason", "said"),
        [
            (502, b"<html>\n<h1>Bad   Gateway</h1>", "", "the server answered 502: <html> <h1>Bad Gateway</h1>"),
            (404, b"404 page not found\n", "NotFound", "404 page not found"),
            (500, b"", "InternalError", "the server answered 500"),
            (403, b'{"kind":"Other"}', "Forbidden", 'the server answered 403: {"kind":"Other"}'),
            (400, b'{"kind":"Status"}', "BadRequest", "the server answered 400 without a message"),
            (500, b"x" * 9999, "InternalError", "x" * 500),
        ],
    )
    async def test_non_status_error_response_becomes_status_error(
        self, code: int, body: bytes, reason: str, said: str
    ) -> None:
        async with served(answering(code, body)) as (client, _):
            error = await refusal(client.get(PODS, "a", "b"))
        assert (error.code, error.reason) == (code, reason)
        assert said in error.message
        assert len(error.message) < 600

    async def test_non_json_list_response_is_rejected(self) -> None:
        async with served(answering(200, b"<html>")) as (client, _):
            assert "the server's list cannot be read" in (await refusal(client.list(PODS))).message

    async def test_refused_connection_raises_unreachable(self) -> None:
        async with RawServer(OK) as server:
            url = server.url
        client = HttpClient(ClientConfig(server=url))
        error = await refusal(client.create(PODS, "a", {}))
        await client.close()
        assert isinstance(error, Unreachable)
        assert not error.sent
        assert error.message == f"cannot connect to {url}: Connection refused"

    async def test_unresolvable_host_raises_unreachable(self) -> None:
        client = HttpClient(ClientConfig(server="https://no-such-host.invalid"))
        error = await refusal(client.get(PODS, "a", "b"))
        await client.close()
        assert isinstance(error, Unreachable)
        assert "cannot connect to https://no-such-host.invalid" in error.message

    async def test_connection_loss_before_response_raises_unreachable_without_retry(self) -> None:
        async with served(_cut) as (client, server):
            error = await refusal(client.create(PODS, "a", {}))
            assert isinstance(error, Unreachable)
            assert error.sent
            assert "was lost before it answered" in error.message
            assert len(server.seen) == 1  # whether it was done nobody knows: not sent twice

    async def test_connection_loss_during_response_is_reported(self) -> None:
        async def half(said: Conversation) -> None:
            await said.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            said.writer.close()

        async with served(half) as (client, _):
            error = await refusal(client.get(PODS, "a", "b"))
        assert "was lost while it answered" in error.message

    async def test_request_timeout_raises_504(self) -> None:
        async with served(_hang, options={"timeout_seconds": 0.05}) as (client, server):
            error = await refusal(client.get(PODS, "a", "b"))
            assert (error.code, error.reason) == (504, "Timeout")
            assert "did not answer GET /api/v1/namespaces/a/pods/b within 0.05 seconds" in error.message
            if server.connections:  # on a slow machine the time may be up before there is one
                await asyncio.wait_for(server.nobody.wait(), LIMIT_SECONDS)

    async def test_request_on_closed_client_is_rejected(self) -> None:
        async with served(OK) as (client, _):
            await client.close()
            assert "is closed" in (await refusal(client.get(PODS, "a", "b"))).message

    async def test_unreadable_credentials_raise_unreachable_before_sending(self, tmp_path: Path) -> None:
        async with served(OK, token_file=tmp_path / "token") as (client, server):
            error = await refusal(client.get(PODS, "a", "b"))
            assert isinstance(error, Unreachable)
            assert not error.sent
            assert not server.seen


class TestAgain:
    async def test_request_is_retried_after_429(self) -> None:
        async with served(BUSY, BUSY, OK) as (client, server):
            await client.create(PODS, "a", {})
            assert [said.method for said in server.seen] == ["POST"] * 3

    async def test_request_is_not_retried_when_retry_after_exceeds_deadline(self) -> None:
        later = answering(429, b"", Retry_After="3600")
        async with served(later) as (client, server):
            assert (await refusal(client.get(PODS, "a", "b"))).code == 429
            assert len(server.seen) == 1

    async def test_request_retries_after_429_are_limited(self) -> None:
        async with served(BUSY) as (client, server):
            assert (await refusal(client.get(PODS, "a", "b"))).code == 429
            assert len(server.seen) == 8

    @pytest.mark.parametrize("allowed", [0, 1, 2])
    async def test_write_is_not_sent_after_leadership_loss(self, allowed: int) -> None:
        """Asked when there is a connection, and when the bytes leave: of two attempts the second is never seen."""
        asked: list[int] = []

        def ask() -> None:
            asked.append(allowed)
            if len(asked) > allowed:
                raise LookupError("somebody else may lead by now")

        async def write() -> None:
            permit.set(ask)
            await client.create(PODS, "a", {})

        async with served(BUSY) as (client, server):
            with pytest.raises(LookupError, match="somebody else"):
                await asyncio.create_task(write())
            assert [said.method for said in server.seen] == ["POST"] * (allowed // 2)

    async def test_eviction_is_not_retried_after_429(self) -> None:
        async with served(BUSY) as (client, server):
            await refusal(client.create(PODS, "a", {}, name="b", subresource="eviction"))
            assert len(server.seen) == 1

    @pytest.mark.parametrize(("method", "times"), [("GET", 2), ("POST", 1)])
    async def test_read_is_retried_on_503_with_retry_after_and_write_is_not(self, method: str, times: int) -> None:
        down = answering(503, b"apiserver is shutting down", Retry_After="0")
        async with served(down, OK) as (client, server):
            if method == "GET":
                await client.get(PODS, "a", "b")
            else:
                assert (await refusal(client.create(PODS, "a", {}))).code == 503
            assert len(server.seen) == times

    async def test_request_is_not_retried_on_503_without_retry_after(self) -> None:
        async with served(answering(503), OK) as (client, server):
            assert (await refusal(client.get(PODS, "a", "b"))).reason == "ServiceUnavailable"
            assert len(server.seen) == 1

    async def test_retry_after_date_falls_back_to_default_wait(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("remuda.kube.http.transport._DEFAULT_WAIT_SECONDS", 0.0)
        dated = answering(429, b"", Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")
        async with served(dated, OK) as (client, _):
            await client.get(PODS, "a", "b")


class TestCredentials:
    async def test_request_is_retried_with_renewed_token_after_401(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("old")

        async def renew(said: Conversation) -> None:
            path.write_text("newer")
            await said.answer(401)

        async with served(renew, OK, token_file=path) as (client, server):
            await client.create(PODS, "a", {})
            assert [said.header("authorization") for said in server.seen] == ["Bearer old", "Bearer newer"]

    async def test_request_is_not_retried_after_401_with_fixed_token(self) -> None:
        async with served(answering(401), token="t") as (client, server):
            assert (await refusal(client.get(PODS, "a", "b"))).reason == "Unauthorized"
            assert len(server.seen) == 1

    async def test_watch_is_restarted_with_renewed_token_after_401(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("old")

        async def renew(said: Conversation) -> None:
            path.write_text("newer")
            await said.answer(401)

        async with served(renew, _short_watch, token_file=path) as (client, server):
            assert len(await changes(client)) == 1
            assert len(server.seen) == 2

    async def test_failing_exec_plugin_is_reported(self) -> None:
        plugin = ExecPlugin(api_version="client.authentication.k8s.io/v1", command="false")
        async with served(OK, exec=plugin) as (client, _):
            assert "exited with code 1" in (await refusal(client.get(PODS, "a", "b"))).message


EVENT = b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a"}}}\n'


async def _short_watch(said: Conversation) -> None:
    await said.begin_stream()
    await said.chunk(EVENT)
    await said.end_stream()


async def test_stream_of_204_response_is_empty() -> None:
    """The real server answers 204 for the log of a Pod that has no node."""
    async with served(answering(204)) as (client, _):
        assert [chunk async for chunk in client.raw_stream("/api/v1/namespaces/a/pods/b/log")] == []


class TestWatches:
    async def test_watch_reads_events_split_across_chunks(self) -> None:
        async def watch(said: Conversation) -> None:
            await said.begin_stream()
            for at in range(0, 3 * len(EVENT), 7):
                await said.chunk((EVENT * 3)[at : at + 7])
            await said.end_stream()

        async with served(watch) as (client, server):
            found = await changes(client, resource_version="5", timeout_seconds=90)
        assert [change.value for change in found] == [b'{"kind":"Pod","metadata":{"name":"a"}}'] * 3
        target = server.seen[0].target
        assert target == "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion=5"

    async def test_watch_reads_indented_events(self) -> None:
        """As the in-memory API server of Cluster API writes them."""

        async def watch(said: Conversation) -> None:
            await said.begin_stream()
            await said.chunk(msgspec.json.format(EVENT, indent=2) * 2)
            await said.end_stream()

        async with served(watch) as (client, _):
            found = await changes(client)
        assert [msgspec.json.decode(change.value) for change in found] == [
            {"kind": "Pod", "metadata": {"name": "a"}}
        ] * 2

    async def test_watch_error_response_raises_status_error(self) -> None:
        async with served(answering(403)) as (client, _):
            assert (await refusal(changes(client))).code == 403

    async def test_watch_error_event_raises_status_error(self) -> None:
        async def expired(said: Conversation) -> None:
            await said.begin_stream()
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await said.chunk(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
            await said.end_stream()

        async with served(expired) as (client, _):
            error = await refusal(changes(client, resource_version="1"))
        assert (error.code, error.reason) == (410, "Expired")

    async def test_watch_cut_within_event_raises_unreachable(self) -> None:
        async def cut(said: Conversation) -> None:
            await said.begin_stream()
            await said.chunk(EVENT + EVENT[:20])
            said.writer.close()

        async with served(cut) as (client, _):
            watch = client.watch(PODS)
            assert (await anext(watch)).type == "ADDED"
            with pytest.raises(Unreachable, match="was lost while it answered"):
                await anext(watch)

    async def test_watch_stream_ended_within_event_is_reported(self) -> None:
        async def polite(said: Conversation) -> None:
            await said.begin_stream()
            await said.chunk(EVENT[:20])
            await said.end_stream()

        async with served(polite) as (client, _):
            assert "in the middle of a watch event" in (await refusal(changes(client))).message

    async def test_silent_watch_connection_times_out(self) -> None:
        async def silent(said: Conversation) -> None:
            await said.begin_stream()
            await _hang(said)

        async with served(silent, options={"watch_grace_seconds": 0.05}) as (client, server):
            error = await refusal(changes(client, timeout_seconds=0.05))
            assert (error.code, type(error)) == (504, Unreachable)
            assert "the connection is dead" in error.message
            await asyncio.wait_for(server.nobody.wait(), LIMIT_SECONDS)

    async def test_watch_without_response_times_out(self) -> None:
        async with served(_hang, options={"timeout_seconds": 0.05}) as (client, _):
            assert "did not answer GET" in (await refusal(changes(client))).message

    async def test_watch_with_incomplete_error_response_times_out(self) -> None:
        async def half(said: Conversation) -> None:
            await said.send(b"HTTP/1.1 403 X\r\nContent-Length: 100\r\n\r\n{")
            await _hang(said)

        async with served(half, options={"timeout_seconds": 0.05}) as (client, _):
            assert "did not answer GET" in (await refusal(changes(client))).message

    async def test_closing_watch_closes_its_connection(self) -> None:
        async def endless(said: Conversation) -> None:
            await said.begin_stream()
            await said.chunk(EVENT)
            await _hang(said)

        async with served(endless) as (client, server):
            async with aclosing(client.watch(PODS)) as watch:
                assert (await anext(watch)).type == "ADDED"
            await asyncio.wait_for(server.nobody.wait(), LIMIT_SECONDS)

    async def test_closing_client_ends_open_watches(self) -> None:
        async def endless(said: Conversation) -> None:
            await said.begin_stream()
            await said.chunk(EVENT)
            await _hang(said)

        async with served(endless) as (client, _):
            watch = client.watch(PODS)
            await anext(watch)
            await client.close()
            with pytest.raises(Unreachable):
                await asyncio.wait_for(anext(watch), LIMIT_SECONDS)


class TestPages:
    @staticmethod
    def page(*names: str, token: str = "") -> Act:
        items = [{"metadata": {"name": name}} for name in names]
        meta = {"resourceVersion": "5", "continue": token}
        return answering(200, msgspec.json.encode({"kind": "PodList", "metadata": meta, "items": items}))

    async def test_list_all_joins_pages(self) -> None:
        async with served(self.page("a", "b", token="x"), self.page("c")) as (client, server):
            found = await list_all(client, PODS, page=2, label_selector="l")
        assert (len(found.items), found.resource_version, found.continue_token) == (3, "5", "")
        assert [said.target.partition("?")[2] for said in server.seen] == [
            "labelSelector=l&limit=2",
            "labelSelector=l&limit=2&continue=x",
        ]

    async def test_list_all_falls_back_to_full_list_after_410(self) -> None:
        async with served(self.page("a", token="x"), answering(410), self.page("a", "b")) as (client, server):
            assert len((await list_all(client, PODS)).items) == 2
        assert "limit" not in server.seen[2].target

    async def test_list_all_raises_error_of_first_page(self) -> None:
        async with served(answering(410)) as (client, _):
            assert (await refusal(list_all(client, PODS))).code == 410


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("raw")


class TestTls:
    @staticmethod
    def context(authority: Authority, folder: Path) -> ssl.SSLContext:
        certificate, key = authority.server("127.0.0.1")
        files = write(folder, server=certificate, server_key=key, ca=authority.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files["server"], files["server_key"])
        context.load_verify_locations(files["ca"])
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    @staticmethod
    async def ask(access: ClientConfig) -> StatusError | None:
        client = HttpClient(access)
        try:
            await client.get(PODS, "a", "b")
            return None
        except StatusError as error:
            return error
        finally:
            await client.close()

    async def test_untrusted_server_certificate_is_rejected_unless_insecure(
        self, authority: Authority, tmp_path: Path
    ) -> None:
        async with RawServer(OK, tls=self.context(authority, tmp_path)) as server:
            assert await self.ask(ClientConfig(server=server.url, ca=authority.pem)) is None
            for untrusting in (
                ClientConfig(server=server.url),
                ClientConfig(server=server.url, ca=Authority("raw").pem),
            ):
                error = await self.ask(untrusting)
                assert isinstance(error, Unreachable)
                assert "is not trusted" in error.message
            assert len(server.seen) == 1
            assert await self.ask(ClientConfig(server=server.url, insecure=True)) is None

    async def test_tls_server_name_overrides_verified_host_name(self, authority: Authority, tmp_path: Path) -> None:
        async with RawServer(OK, tls=self.context(authority, tmp_path)) as server:
            good = ClientConfig(server=server.url, ca=authority.pem, tls_server_name="localhost")
            assert await self.ask(good) is None
            bad = ClientConfig(server=server.url, ca=authority.pem, tls_server_name="elsewhere")
            assert "is not trusted" in str(await self.ask(bad))

    async def test_renewed_client_certificate_is_used_once_key_matches(
        self, authority: Authority, tmp_path: Path
    ) -> None:
        names: list[str] = []

        async def note(said: Conversation) -> None:
            subject = said.writer.get_extra_info("peercert")["subject"]
            names.append(subject[-1][0][1])
            await said.answer(200, POD)

        async def renew(common: str) -> None:
            certificate, key = authority.client(common)
            await asyncio.to_thread(write, tmp_path, client=certificate, client_key=key)

        await renew("first")
        files = {"client_certificate": tmp_path / "client.pem", "client_key": tmp_path / "client_key.pem"}
        async with RawServer(note, tls=self.context(authority, tmp_path)) as server:
            client = HttpClient(ClientConfig(server=server.url, ca=authority.pem, **files))
            await client.get(PODS, "a", "b")
            (tmp_path / "client.pem").write_bytes(authority.client("second")[0])
            await client.get(PODS, "a", "b")  # the new certificate does not fit the key yet
            await renew("third")
            await client.get(PODS, "a", "b")
            await client.close()
        assert names == ["first", "first", "third"]
        assert server.connections == 2

    async def test_proxy_url_tunnels_requests_with_connect(self, authority: Authority, tmp_path: Path) -> None:
        asked: list[bytes] = []

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append(head.split(b"\r\n")[0])
            host, _, port = head.split(b" ")[1].decode().partition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        async with RawServer(OK, tls=self.context(authority, tmp_path)) as server:
            access = ClientConfig(server=server.url, ca=authority.pem, proxy_url=f"http://127.0.0.1:{port}")
            assert await self.ask(access) is None
        proxy.close()
        assert asked == [f"CONNECT {server.url.removeprefix('https://')} HTTP/1.1".encode()]


def test_transport_error_message_omits_url_query() -> None:
    url = URL("https://far.example/api?token=secret")
    about = aiohttp.RequestInfo(url, "GET", CIMultiDictProxy(CIMultiDict()), url)
    assert plainly(aiohttp.ConnectionTimeoutError(f"Connection timeout to host {url}")) == "no connection within 10 s"
    assert plainly(aiohttp.ClientResponseError(about, (), status=400, message="bad line")) == "bad line"
    assert plainly(aiohttp.ClientResponseError(about, ())) == "ClientResponseError"
