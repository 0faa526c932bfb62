"""Client of another server's supervisor, over verified TLS, with the cluster's token.

Trust comes first: an authority that is already on this host, or else the one that the server presents, compared with
the hash in the token. With a token without a hash, any authority is trusted, with a warning.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from remuda.kube.http.tls import client_context
from remuda.lab import LabError
from remuda.lab.nano import tokens
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.tokens import JoinToken

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_MOST = 16 << 20


class NoAnswer(LabError):
    """Server that is unreachable, perhaps only now: worth a retry."""


class UnexpectedAnswer(LabError):
    """Unexpected answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class Caller:
    """Client. Close it after use."""

    def __init__(self, context: ssl.SSLContext, token: JoinToken | None = None, user: str = "") -> None:
        headers = {}
        if token is not None and token.is_bootstrap:
            headers["Authorization"] = f"Bearer {token.password}"
        elif token is not None:
            credentials = f"{token.user or user}:{token.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=16),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_CONNECT_SECONDS),
        )

    async def ask(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = _ANSWER_SECONDS,
        most: int = _MOST,
    ) -> bytes:
        """Return the body of a 200. Raise NoAnswer, UnexpectedAnswer."""
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(
                    method, URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                content = bytearray()
                while (piece := await answer.content.readany()) and len(content) <= most:
                    content += piece
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"{url} does not answer: {_words(error)}") from None
        except TimeoutError:
            raise NoAnswer(f"{url} does not answer in time") from None
        if answer.status != 200:
            raise UnexpectedAnswer(answer.status, content[:1000].decode(errors="replace").strip())
        if len(content) > most:
            raise NoAnswer(f"{url} answers more than {most} bytes")
        return bytes(content)

    async def ask_json(self, method: str, url: str, value: Any = None, *, seconds: float = _ANSWER_SECONDS) -> Any:
        body = msgspec.json.encode(value) if value is not None else None
        answer = await self.ask(method, url, body=body, seconds=seconds)
        try:
            return msgspec.json.decode(answer)
        except msgspec.DecodeError:
            raise NoAnswer(f"{url} answers something else than JSON") from None

    async def close(self) -> None:
        await self._session.close()


async def trusted_authorities(server: str, token: JoinToken, on_disk: bytes | None) -> bytes:
    """Return the PEM that verifies `server`. Raise FatalError if it does not match the token, NoAnswer."""
    if on_disk is not None:
        if token.ca_hash and tokens.ca_hash(on_disk) != token.ca_hash:
            raise FatalError("token CA hash does not match the CA certificates on this host")
        return on_disk
    caller = Caller(client_context(insecure=True))
    try:
        shown = await caller.ask("GET", f"{server}/cacerts")
    except UnexpectedAnswer as answered:
        raise NoAnswer(f"{server} shows no authorities: {answered}") from None
    finally:
        await caller.close()
    try:
        found = tokens.ca_hash(shown)
    except ValueError:
        raise NoAnswer(f"{server}/cacerts is not a certificate in PEM") from None
    if not token.ca_hash:
        log.warning("the token has no CA hash; trusting the CA that %s presents", server)
    elif found != token.ca_hash:
        raise FatalError(
            f"token CA hash does not match the Cluster CA certificate hash: {token.ca_hash[:8]}… != {found[:8]}…"
        )
    return shown


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    return str(error) or type(error).__name__
