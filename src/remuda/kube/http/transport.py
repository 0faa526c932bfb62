"""HTTP transport of all requests: identity, connection, deadline and retries.

A request is retried only if the server cannot have executed it: after a 401 if other credentials are available, after a
429, and a read after a 503 with Retry-After; each only if the requested delay ends before the deadline. All other
errors are raised to the caller.

Connections are kept per identity. When the identity changes they are replaced; running watches stay on the old ones
until they end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
from yarl import URL

import remuda
from remuda.kube import random_source
from remuda.kube.errors import StatusError, Unreachable, status_error
from remuda.kube.http.identity import ClientIdentity, identity_source, impersonation_headers
from remuda.kube.http.link import CONNECT_SECONDS, Connector, Link, direct
from remuda.kube.http.tls import client_context
from remuda.kube.kubeconfig import ClientConfig, KubeconfigError

log = logging.getLogger(__name__)

USER_AGENT = f"remuda/{remuda.__version__}"
NO_ANSWER = "<error>"
NO_CONNECTION = f"no connection within {CONNECT_SECONDS:g} s"

# Arguments for every exchange: the method, the code as text (NO_ANSWER for none), and the seconds it took.
Observe = Callable[[str, str, float], None]
Warn = Callable[[str], None]

_AT_ONCE = 64  # requests; watches do not count
_ATTEMPTS = 8
_DEFAULT_WAIT_SECONDS = 1.0
_WARNINGS_KEPT = 200
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Transport:
    def __init__(
        self,
        access: ClientConfig,
        *,
        timeout_seconds: float = 60.0,
        observe: Observe | None = None,
        user_agent: str = USER_AGENT,
        connector: Connector = direct,
        warn: Warn | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self.access = access
        self._most_bytes = most_bytes
        self._warn = warn or self._log_warning
        self._connector = connector
        self.timeout_seconds = timeout_seconds
        self._identities = identity_source(access)
        self._observe = observe
        self._headers = [("User-Agent", user_agent), *impersonation_headers(access.impersonate)]
        self._link: Link | None = None
        self._retired: set[Link] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._warned: dict[str, None] = {}
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patient: bool = True,
    ) -> bytes:
        """Return the body of a successful answer. `patient`: retry while the server is busy, when it says so, until the
        deadline.
        """
        sent = [*self._headers, ("Accept-Encoding", "gzip"), *(headers or {}).items()]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_seconds
        attempt = 0
        try:
            # The wait for a slot counts against the deadline: the caller's timeout bounds everything.
            async with asyncio.timeout_at(deadline), self._slots:
                while True:
                    async with self._exchange(method, path, body, sent) as (answer, identity):
                        content = await self._body(answer)
                        error = _error_in(answer, content)
                    if error is None:
                        return content
                    attempt += 1
                    wait = self._wait_seconds(method, error, identity, attempt, patient)
                    if wait is None or loop.time() + wait >= deadline:
                        raise error
                    await asyncio.sleep(wait)
        except TimeoutError:
            raise self._late(method, path) from None

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.StreamReader]:
        """Stream the body of a GET. The connection is closed with the context, even if the body is incomplete."""
        sent = [*self._headers, *headers.items()]
        for attempt in (1, 2):
            async with self._exchange("GET", path, None, sent, keep=False) as (answer, identity):
                if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                    yield answer.content  # 204, for example for the log of a Pod without a node, has no body
                    return
                error = _error_in(answer, await self._read_in_time(answer, path))
            assert error is not None
            if error.code != HTTPStatus.UNAUTHORIZED or attempt == 2 or not self._identities.refused(identity):
                raise error

    async def close(self) -> None:
        self._closed = True
        links = [*self._retired, *([self._link] if self._link else [])]
        self._link = None
        self._retired.clear()
        for link in links:
            await link.session.close()

    # -- one exchange --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Sequence[tuple[str, str]], *, keep: bool = True
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, ClientIdentity]]:
        """Send one request and return its answer, success or error. Raise Unreachable if there is none, or it is cut
        off.
        """
        started = asyncio.get_running_loop().time()
        code, answered = NO_ANSWER, False
        link, identity = await self._linked()
        who = [("Authorization", identity.authorization)] if identity.authorization else []
        # No await since `_linked`: a link without users is closed when it is replaced, and this request would lose it.
        link.users += 1
        try:
            answer = await self._send(link, method, path, body, [*headers, *who])
            code, answered = str(answer.status), True
            self._show_warnings(answer)
            async with answer:
                try:
                    yield answer, identity
                finally:
                    if not keep:
                        answer.close()
        except aiohttp.ClientError as error:
            raise self._lost(error, answered) from error
        except RuntimeError as error:
            if not self._closed:  # aiohttp's error when its session was closed during a read
                raise
            raise self._lost(error, answered) from error
        finally:
            link.users -= 1
            await self._dismiss(link)
            if self._observe is not None:
                self._observe(method, code, asyncio.get_running_loop().time() - started)

    async def _send(
        self, link: Link, method: str, path: str, body: bytes | None, headers: Sequence[tuple[str, str]]
    ) -> aiohttp.ClientResponse:
        """Send the request and return when the answer starts."""
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await link.session.request(
                    method,
                    URL(self.access.server + path, encoded=True),
                    data=body,
                    headers=headers,
                    allow_redirects=False,  # our credentials are for this server only
                    proxy=self.access.proxy_url or None,
                    server_hostname=self.access.tls_server_name or None,
                )
        except TimeoutError as error:
            # aiohttp's own timeouts are TimeoutErrors as well. They mean that no connection was made, not that the
            # answer is late.
            if isinstance(error, aiohttp.ClientError):
                raise
            raise self._late(method, path) from None

    async def _read_in_time(self, answer: aiohttp.ClientResponse, path: str) -> bytes:
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await self._body(answer)
        except TimeoutError:
            raise self._late("GET", path) from None

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        """Return the body. Raise Unreachable if it exceeds `most_bytes` after decompression."""
        if self._most_bytes is None:
            return await answer.read()
        content = bytearray()
        async for piece in answer.content.iter_any():  # aiohttp unpacks no more than is read
            content += piece
            if len(content) > self._most_bytes:
                answer.close()
                raise Unreachable(f"the response of {self.access.server} is larger than {self._most_bytes} bytes")
        return bytes(content)

    def _late(self, method: str, path: str) -> Unreachable:
        text = f"{self.access.server} did not answer {method} {path} within {self.timeout_seconds:g} seconds"
        return Unreachable(text, code=504)

    def _lost(self, error: Exception, answered: bool) -> Unreachable:
        server = self.access.server
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
            return Unreachable(f"the certificate of {server} is not trusted: {why}", sent=False)
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            inner = getattr(error, "os_error", None)
            return Unreachable(f"cannot connect to {server}: {plainly(inner or error)}", sent=False)
        when = "while it answered" if answered else "before it answered"
        return Unreachable(f"the connection to {server} was lost {when}: {plainly(error)}")

    # -- again? --------------------------------------------------------------------------------------------------

    def _wait_seconds(
        self, method: str, error: StatusError, identity: ClientIdentity, attempt: int, patient: bool
    ) -> float | None:
        """Return the seconds to wait before the request is retried; None if it is not retried."""
        if error.code == HTTPStatus.UNAUTHORIZED:
            # Once: if the server refuses the renewed credentials too, a third attempt cannot help.
            return 0.0 if attempt == 1 and self._identities.refused(identity) else None
        busy = error.code == HTTPStatus.TOO_MANY_REQUESTS
        # Only reads: after a 503 the server may have executed a write.
        down = error.code == HTTPStatus.SERVICE_UNAVAILABLE and method == "GET" and "Retry-After" in error.headers
        if not patient or not (busy or down) or attempt == _ATTEMPTS:
            return None
        try:
            asked = float(error.headers.get("Retry-After", _DEFAULT_WAIT_SECONDS))
        except ValueError:  # a date
            asked = _DEFAULT_WAIT_SECONDS
        # spread, so that clients do not retry at the same moment
        return max(asked, 0.0) + random_source.between(0, 0.1 * attempt)

    def _show_warnings(self, answer: aiohttp.ClientResponse) -> None:
        """Report each warning once: a server repeats them with every request."""
        for text in answer.headers.getall("Warning", ()):
            if text not in self._warned and len(self._warned) < _WARNINGS_KEPT:
                self._warned[text] = None
                self._warn(_warning_text(text))

    def _log_warning(self, text: str) -> None:
        log.warning("%s: %s", self.access.server, text)

    # -- connections ---------------------------------------------------------------------------------------------

    async def _linked(self) -> tuple[Link, ClientIdentity]:
        if self._closed:
            raise Unreachable(f"the client of {self.access.server} is closed", sent=False)
        try:
            identity = await self._identities.current()
            if self._link is None or not self._link.serves(identity):
                await self._replace_link(identity)
        except KubeconfigError as error:
            raise Unreachable(str(error), sent=False) from None
        assert self._link is not None
        return self._link, identity

    async def _replace_link(self, identity: ClientIdentity) -> None:
        old = self._link
        try:
            context = self._context(identity)
        except KubeconfigError as error:
            if old is None:
                raise
            # The certificate file was replaced a moment before its key file. They match again soon.
            log.warning("cannot reload the credentials of the kubeconfig: %s; still using the previous ones", error)
            return
        self._link = Link(identity, context, self._connector)
        if old is not None:
            self._retired.add(old)
            await self._dismiss(old)

    def _context(self, identity: ClientIdentity) -> ssl.SSLContext | None:
        access = self.access
        if access.server.startswith("http://"):
            return None
        return client_context(
            ca_pem=identity.ca_pem,
            certificate_pem=identity.certificate_pem,
            key_pem=identity.key_pem,
            insecure=access.insecure,
            origin=access.origin,
        )

    async def _dismiss(self, link: Link) -> None:
        if link in self._retired and not link.users:
            self._retired.discard(link)
            await link.session.close()


def _error_in(answer: aiohttp.ClientResponse, content: bytes) -> StatusError | None:
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    retry = answer.headers.get("Retry-After")
    return status_error(answer.status, content, {"Retry-After": retry} if retry else None)


def _warning_text(header: str) -> str:
    """Return the quoted text of a Warning header, unescaped."""
    quoted = _QUOTED.search(header)
    return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else header


def plainly(error: BaseException) -> str:
    """Return the system's error text if there is one; without the URL, which aiohttp includes with its query."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NO_CONNECTION
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        number = error.errno or 0  # resolver errors: negative, with their own text
        return os.strerror(number) if number > 0 else error.strerror
    return str(error) or type(error).__name__
