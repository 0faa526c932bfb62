"""Forwarder of requests to the server that has the data.

TLS cannot be forwarded without decryption, because each server answers some paths itself and has its own names. The
identity of the client is forwarded as `identity` describes. Watches and logs are streamed; a slow reader slows down the
sender.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable

import aiohttp
from yarl import URL

from remuda.apiserver.http.answers import error_response
from remuda.kube.errors import StatusError
from remuda.kube.web import MAX_BODY, Request, Response, Result, Sink, Stream, header_block
from remuda.lab.nano.identity import CLIENT_CERTIFICATE, SAME_HOST, TlsIdentity
from remuda.lab.nano.members import NO_LEADER

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 3.0
_WHOLE = 1 << 20  # an answer of known length up to this size is forwarded in one piece
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    b"content-length expect date".split()
)


class Forwarder:
    """Forwarder. `same_host`: to the components of this host, which themselves forward requests for other servers."""

    def __init__(self, identity: TlsIdentity, leader_url: Callable[[], str], *, same_host: bool = False) -> None:
        self._extra = [(SAME_HOST.decode(), "true")] if same_host else []
        self._leader_url = leader_url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=identity.proxy_context(), limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=False,
        )

    async def handle(self, request: Request) -> Result:
        body = await request.body(MAX_BODY) if request.method not in ("GET", "HEAD") else None
        try:
            answer = await self._session.request(
                request.method,
                URL(self._leader_url() + request.target, encoded=True),
                data=body,
                headers=[*_passed_on(request), *self._extra],
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.info("cannot forward %s %s: %s", request.method, request.path, error)
            return error_response(request, StatusError(503, "ServiceUnavailable", NO_LEADER))
        headers = _passed_back(answer)
        length = answer.content_length
        if request.method == "HEAD" or (length is not None and length <= _WHOLE):
            try:
                async with answer:
                    return Response(answer.status, await answer.read(), headers)
            except (aiohttp.ClientError, OSError):
                return error_response(request, StatusError(503, "ServiceUnavailable", NO_LEADER))
        watches = request.first("watch") in ("true", "1")
        return Stream(_copying(answer, may_end=watches), headers, answer.status)

    async def close(self) -> None:
        await self._session.close()


def _passed_on(request: Request) -> list[tuple[str, str]]:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in (*request.headers.items(), *request.repeated)
        # Without headers that name a client certificate: only this server may say whose request it is.
        if name not in _HOP_BY_HOP and name not in (CLIENT_CERTIFICATE, SAME_HOST)
    ]
    if request.peer.certificate is not None:
        shown = base64.b64encode(request.peer.certificate).decode()
        headers.append((CLIENT_CERTIFICATE.decode(), shown))
    return headers


def _passed_back(answer: aiohttp.ClientResponse) -> bytes:
    return header_block(
        (name, value) for name, value in answer.headers.items() if name.lower().encode("latin-1") not in _HOP_BY_HOP
    )


def _copying(answer: aiohttp.ClientResponse, *, may_end: bool) -> Callable[[Sink], Awaitable[None]]:
    """Copy the body. `may_end`: a watch ends with the leader and is then restarted; other answers must not look
    complete.
    """

    async def copy(sink: Sink) -> None:
        try:
            while piece := await answer.content.readany():
                sink.write(piece)
                await sink.drain()
        except (aiohttp.ClientError, OSError) as error:
            if not may_end:
                raise
            log.info("a watch ended because the leader was lost: %s", error)
        finally:
            answer.close()

    return copy
