"""The client of a registry against a small server that does what real ones do only on bad days."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from remuda.agent.images import ImageError, manifests
from remuda.agent.images.credentials import RegistryCredentials
from remuda.agent.images.registries import Endpoint, Registries
from remuda.agent.images.registry import ImageRegistry
from remuda.agent.images.web import Web
from tests.lab.images import digest

Reply = tuple[int, dict[str, str], bytes]
BLOB = bytes(range(256)) * 8000
LAYER = manifests.Layer(digest(BLOB), len(BLOB))


class _Server:
    """`answer(path, headers, body)` decides; every request is kept."""

    def __init__(self, answer: Callable[[str, Any, bytes], Reply]) -> None:
        self.requests: list[tuple[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.path, self.headers))
                status, headers, content = answer(self.path, self.headers, body)
                self.send_response(status)
                headers.setdefault("Content-Length", str(len(content)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., _Server]]:
    servers: list[_Server] = []

    def start(answer: Callable[[str, Any, bytes], Reply]) -> _Server:
        servers.append(_Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def registry(
    server: _Server, credentials: RegistryCredentials | None = None, waits: list[float] | None = None
) -> ImageRegistry:
    endpoint = Endpoint(f"http://{server.host}/v2", server.host, "team/image", "")
    sleep = (waits if waits is not None else []).append
    return ImageRegistry(endpoint, Web(Registries().context, {}), lambda: credentials, sleep)


def test_manifest_request_accepts_all_manifest_formats(serve: Callable[..., _Server]) -> None:
    server = serve(lambda path, headers, body: (200, {}, b"{}"))
    assert registry(server).manifest("v1") == b"{}"
    path, headers = server.requests[0]
    assert path == "/v2/team/image/manifests/v1"
    assert set(headers["Accept"].split(", ")) == {*manifests.IMAGES, *manifests.INDEXES}


def test_mirror_request_carries_namespace_parameter(serve: Callable[..., _Server]) -> None:
    server = serve(lambda path, headers, body: (200, {}, b"{}"))
    mirror = ImageRegistry(
        Endpoint(f"http://{server.host}/hub", server.host, "a", "example.com:5000"),
        Web(Registries().context, {}),
        lambda: None,
    )
    mirror.manifest("v1")
    assert server.requests[0][0] == "/hub/a/manifests/v1?ns=example.com%3A5000"


def test_manifest_fetched_by_digest_is_verified(serve: Callable[..., _Server]) -> None:
    server = serve(lambda path, headers, body: (200, {}, b"{}"))
    assert registry(server).manifest(digest(b"{}")) == b"{}"
    with pytest.raises(ImageError, match="is not what its digest"):
        registry(server).manifest(digest(b"other"))


def test_basic_credentials_are_sent_only_after_challenge(serve: Callable[..., _Server]) -> None:
    def answer(path: str, headers: Any, body: bytes) -> Reply:
        if headers["Authorization"] == "Basic dXNlcjpwdw==":
            return 200, {}, b"{}"
        return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""

    server = serve(answer)
    client = registry(server, RegistryCredentials("user", "pw"))
    client.manifest("v1")
    client.manifest("v2")
    assert [headers["Authorization"] is not None for _, headers in server.requests] == [False, True, True]
    with pytest.raises(ImageError, match="asks for credentials, and none are known"):
        registry(server).manifest("v1")
    with pytest.raises(ImageError, match="the credentials do not suffice") as caught:
        registry(server, RegistryCredentials("user", "wrong-secret")).manifest("v1")
    assert "wrong-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "credentials", [None, RegistryCredentials("user", "pw"), RegistryCredentials("", "", "identity")]
)
def test_bearer_token_is_fetched_from_challenge_realm(
    serve: Callable[..., _Server], credentials: RegistryCredentials | None
) -> None:
    bodies: list[bytes] = []

    def issue(path: str, headers: Any, body: bytes) -> Reply:
        bodies.append(body)
        return 200, {}, b'{"access_token": "abc"}'

    issuer = serve(issue)

    def answer(path: str, headers: Any, body: bytes) -> Reply:
        if headers["Authorization"] == "Bearer abc":
            return 200, {}, b"{}"
        challenge = f'Bearer realm="http://{issuer.host}/token?x=1",service="the \\"service\\""'
        challenge += ',scope="repository:team/image:pull"'
        return 401, {"WWW-Authenticate": challenge}, b""

    server = serve(answer)
    registry(server, credentials).manifest("v1")
    path, headers = issuer.requests[0]
    if credentials is not None and credentials.identity_token:
        assert path == "/token?x=1"
        assert b"refresh_token=identity" in bodies[0]
        assert headers["Authorization"] is None
    else:
        assert path == "/token?x=1&scope=repository%3Ateam%2Fimage%3Apull&service=the+%22service%22"
        assert headers["Authorization"] == ("Basic dXNlcjpwdw==" if credentials else None)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((401, {}, b""), "refuses the credentials"),
        ((200, {}, b"{}"), "answered 200 without a token"),
        ((200, {}, b'{"token": "a\\r\\nX-Evil: 1"}'), "answered 200 without a token"),
        ((500, {}, b"oops"), "answered 500 without a token"),
    ],
)
def test_token_server_failure_names_the_server(serve: Callable[..., _Server], reply: Reply, said: str) -> None:
    issuer = serve(lambda path, headers, body: (reply[0], dict(reply[1]), reply[2]))
    server = serve(
        lambda path, headers, body: (401, {"WWW-Authenticate": f'Bearer realm="http://{issuer.host}/"'}, b"")
    )
    with pytest.raises(ImageError, match=f"token server {issuer.host} {said}"):
        registry(server).manifest("v1")


def test_cross_host_redirect_drops_credentials(serve: Callable[..., _Server]) -> None:
    storage = serve(lambda path, headers, body: (200, {}, BLOB))

    def answer(path: str, headers: Any, body: bytes) -> Reply:
        if headers["Authorization"] is None:
            return 401, {"WWW-Authenticate": "Basic"}, b""
        if path == "/v2/here":
            return 307, {"Location": f"http://{storage.host}/there"}, b""
        return 302, {"Location": "/v2/here"}, b""

    server = serve(answer)
    into = io.BytesIO()
    registry(server, RegistryCredentials("user", "pw")).blob(LAYER, into)
    assert into.getvalue() == BLOB
    assert storage.requests[0][1]["Authorization"] is None
    assert [headers["Authorization"] is not None for _, headers in server.requests] == [False, True, True]


def test_redirect_loops_and_https_downgrades_are_rejected(serve: Callable[..., _Server]) -> None:
    server = serve(lambda path, headers, body: (302, {"Location": "/again"}, b""))
    with pytest.raises(ImageError, match="answered 302"):
        registry(server).manifest("v1")
    assert len(server.requests) == 6
    with pytest.raises(ImageError, match="redirects from https to http"):
        registry(server)._redirected("https://a.example.com/x", "http://a.example.com/x")


def test_transient_registry_errors_are_retried_with_retry_after(serve: Callable[..., _Server]) -> None:
    replies = iter([(503, {}, b""), (429, {"Retry-After": "7"}, b""), (200, {}, b"{}")])
    server = serve(lambda path, headers, body: next(replies))
    waits: list[float] = []
    assert registry(server, waits=waits).manifest("v1") == b"{}"
    assert len(waits) == 2
    assert waits[0] < 2
    assert 7 <= waits[1] < 10


def test_persistent_registry_errors_raise_image_error_with_reason(serve: Callable[..., _Server]) -> None:
    server = serve(lambda path, headers, body: (503, {}, b""))
    with pytest.raises(ImageError, match=f"{server.host} answered 503 when asked for the image"):
        registry(server).manifest("v1")
    assert len(server.requests) == 4
    with pytest.raises(ImageError, match="does not have the image"):
        registry(serve(lambda path, headers, body: (404, {}, b""))).manifest("v1")
    with pytest.raises(ImageError, match="larger than any manifest"):
        registry(serve(lambda path, headers, body: (200, {}, bytes(5 << 20)))).manifest("v1")
    server.stop()
    with pytest.raises(ImageError, match="cannot be reached: Connection refused"):
        registry(server).manifest("v1")


@pytest.mark.parametrize("ranges", [True, False])
def test_interrupted_blob_download_is_resumed(serve: Callable[..., _Server], ranges: bool) -> None:
    def answer(path: str, headers: Any, body: bytes) -> Reply:
        wanted = headers["Range"]
        if wanted is None and len(server.requests) == 1:
            return 200, {"Content-Length": str(len(BLOB))}, BLOB[:1_000_000]
        if wanted is None or not ranges:
            return 200, {}, BLOB
        start = int(wanted[6:-1])
        return 206, {"Content-Range": f"bytes {start}-{len(BLOB) - 1}/{len(BLOB)}"}, BLOB[start:]

    server = serve(answer)
    into = io.BytesIO()
    registry(server).blob(LAYER, into)
    assert into.getvalue() == BLOB
    assert server.requests[1][1]["Range"] == "bytes=1000000-"


def test_blob_with_wrong_digest_or_length_is_rejected(serve: Callable[..., _Server]) -> None:
    changed = b"x" + BLOB[1:]
    with pytest.raises(ImageError, match="is not what its digest says"):
        registry(serve(lambda path, headers, body: (200, {}, changed))).blob(LAYER, io.BytesIO())
    with pytest.raises(ImageError, match="longer than the manifest says"):
        registry(serve(lambda path, headers, body: (200, {}, BLOB + b"x"))).blob(LAYER, io.BytesIO())
    with pytest.raises(ImageError, match="was interrupted 4 times"):
        registry(serve(lambda path, headers, body: (200, {}, BLOB[:5]))).blob(LAYER, io.BytesIO())
