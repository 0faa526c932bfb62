"""Proxy for hosts to the API server of a Kubernetes, limited to the version and one Secret by its name.

This is all that a host needs. Requests are forwarded with the host's own token and no credentials of ours, so the API
server decides what that token permits; this module checks only the shape of a request. A list or a watch must name the
one object, as the permissions of an agent do.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec
from yarl import URL

from remuda.kube.errors import Forbidden, StatusError
from remuda.kube.http.tls import client_context
from remuda.kube.kubeconfig import ClientConfig
from remuda.kube.web import MAX_BODY, Request, Response, Result, Sink, Stream, header_block

log = logging.getLogger(__name__)

_NAME = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_SECRETS = re.compile(rf"/api/v1/namespaces/{_NAME}/secrets(?P<one>/{_NAME})?", re.ASCII)
_ONE = re.compile(rf"metadata\.name={_NAME}", re.ASCII)
_OF_ONE = ("GET", "PUT", "PATCH")
_PASSED_ON = ("Accept", "Authorization", "Content-Type", "User-Agent")
_PASSED_BACK = ("Content-Type", "Retry-After", "Warning", "WWW-Authenticate")
_CONNECT_SECONDS = 10.0
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_ANSWER_SECONDS = 50.0
_JSON = header_block([("Content-Type", "application/json")])


class Passthrough:
    def __init__(self, access: ClientConfig) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        # Called for each request that is denied, here or by the API server, with the code and the reason.
        self.on_denied: Callable[[Request, int, str], None] = lambda request, code, why: None

    async def serve(self, request: Request) -> Result:
        try:
            watches = judge(request)
            result = await self._forward(request, watches)
        except StatusError as error:
            if isinstance(error, Forbidden):
                self.on_denied(request, error.code, error.message)
            return refusal(error)
        if isinstance(result, Response) and result.status in (_UNAUTHORIZED, _FORBIDDEN):
            self.on_denied(request, result.status, "the API server denies it for this token")
        return result

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _forward(self, request: Request, watches: bool) -> Result:
        body = await request.body(MAX_BODY) if request.method in ("PUT", "PATCH") else None
        headers = {name: value for name in _PASSED_ON if (value := request.header(name.lower().encode()))}
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await self._opened().request(
                    request.method,
                    URL(self._access.server + request.target, encoded=True),
                    data=body,
                    # The body is passed back unchanged and Content-Encoding is not, so it must not be compressed.
                    headers={**headers, "Accept-Encoding": "identity"},
                    allow_redirects=False,
                    proxy=self._access.proxy_url or None,
                    server_hostname=self._access.tls_server_name or None,
                )
                if not (watches and answer.status == 200):
                    async with answer:
                        return Response(answer.status, await answer.read(), _passed_back(answer))
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("cannot forward the request of a node agent to the management API server: %s", error)
            raise StatusError(
                503, "ServiceUnavailable", "the API server does not answer", headers={"Retry-After": "5"}
            ) from None
        return Stream(_copying(answer), _passed_back(answer))

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Each host keeps a watch open: aiohttp's default limit of 100 connections would block all further
                # hosts.
                connector=aiohttp.TCPConnector(ssl=self._context() or True, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                auto_decompress=False,
            )
        return self._session

    def _context(self) -> ssl.SSLContext | None:
        """Return the TLS context that verifies the server, without a client certificate of ours."""
        access = self._access
        if access.server.startswith("http://"):
            return None
        ca_pem = access.ca.read_bytes() if isinstance(access.ca, Path) else access.ca
        return client_context(ca_pem=ca_pem, insecure=access.insecure, origin=access.origin)


def judge(request: Request) -> bool:
    """Return whether the request is a watch. Raises a 403 for requests that hosts do not need.

    Paths are compared as received: a path with percent-escapes never matches.
    """
    # Not `request.path`, which is decoded: the API server could read an escaped path differently.
    path = request.target.partition("?")[0]
    if path == "/version" and request.method == "GET":
        return False
    found = _SECRETS.fullmatch(path)
    if found is not None and found["one"] and request.method in _OF_ONE:
        return False
    if found is not None and not found["one"] and request.method == "GET":
        selectors = request.query.get("fieldSelector", [])
        if len(selectors) == 1 and _ONE.fullmatch(selectors[0]):
            return request.first("watch").lower() in ("1", "true")
    raise StatusError(
        403,
        "Forbidden",
        f"{request.method} {path} is not for hosts: they may only use /version and their own Secret, by its name",
    )


def refusal(error: StatusError) -> Response:
    again = error.headers.get("Retry-After", "")
    headers = _JSON + (header_block([("Retry-After", again)]) if again else b"")
    return Response(error.code, msgspec.json.encode(error.status()), headers)


def _copying(answer: aiohttp.ClientResponse) -> Callable[[Sink], Awaitable[None]]:
    async def copy(sink: Sink) -> None:
        try:
            while piece := await answer.content.readany():
                sink.write(piece)
                await sink.drain()
        except aiohttp.ClientError as error:
            log.info("a watch that a node agent had opened was cut off: %s", error)
        finally:
            answer.close()

    return copy


def _passed_back(answer: aiohttp.ClientResponse) -> bytes:
    return header_block(
        (name, value) for name in _PASSED_BACK for value in answer.headers.getall(name, ()) if "\n" not in value
    )
