"""Client of one Secret of a Kubernetes API: reads, watches, and writes it key by key.

A write names the version of the Secret that it is based on, so no concurrent write is lost. If patches are not allowed
(Rancher's role for agents lacks them), the whole Secret is written back with our keys in it.
"""

from __future__ import annotations

import base64
import codecs
import http.client
import io
import json
import os
import random
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from remuda.agent import AgentError, formats, web
from remuda.agent.connection import AgentConnection

_SECONDS = 15.0
_WATCH_SECONDS = (240, 360)
_MOST = 8 << 20
_PIECE = 1 << 16
_LONGEST_TOKEN = 32  # characters of a literal, an escape or a number that the end of a piece may cut off


class ApiError(AgentError):
    """Error response of the server, with its message."""

    def __init__(self, code: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class PlanSecret(NamedTuple):
    uid: str
    version: str
    data: Mapping[str, bytes]
    whole: Mapping[str, Any]


class Api:
    """Client for the plan Secret; used by one thread."""

    def __init__(self, identity: AgentConnection, trust: ssl.SSLContext | None = None) -> None:
        self._identity = identity
        self._trust = trust or trust_of(identity)
        self._server_index = 0
        self._kept: http.client.HTTPSConnection | None = None
        self._patches = True
        self._path = f"/api/v1/namespaces/{quote(identity.namespace)}/secrets"
        self.skew: float | None = None

    @property
    def server(self) -> str:
        return self._identity.servers[self._server_index % len(self._identity.servers)]

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    # The Secret

    def get(self) -> PlanSecret:
        return _secret(self._ask("GET", f"{self._path}/{quote(self._identity.secret)}"))

    def write(self, base: PlanSecret, changes: Mapping[str, bytes]) -> PlanSecret:
        """Write keys. Raises ApiError 409 if the Secret has changed since `base`."""
        data = {key: base64.b64encode(value).decode() for key, value in changes.items()}
        path = f"{self._path}/{quote(self._identity.secret)}"
        if self._patches:
            # With the uid: a Secret that was deleted and created again must not get results of the old one.
            patch = {"metadata": {"resourceVersion": base.version, "uid": base.uid}, "data": data}
            try:
                return _secret(self._ask("PATCH", path, patch, "application/merge-patch+json"))
            except ApiError as error:
                if error.code not in (403, 405, 415):
                    raise
        whole = dict(base.whole, data={**(base.whole.get("data") or {}), **data})
        answer = _secret(self._ask("PUT", path, whole))
        self._patches = False  # only after a PUT has worked
        return answer

    def watch(self, version: str) -> Iterator[tuple[str, str]]:
        """Yield (type, resourceVersion) of each change of the Secret since `version`; without one, its state first.

        Ends when the server ends it, which it does every few minutes.
        """
        # A random duration: the watches of many agents must not end at the same time.
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311
        query = f"fieldSelector=metadata.name%3D{quote(self._identity.secret)}&watch=true&allowWatchBookmarks=true"
        query += f"&timeoutSeconds={seconds}" + (f"&resourceVersion={quote(version)}" if version else "")
        connection, response = self._open("GET", f"{self._path}?{query}", seconds + 30.0)
        try:
            if response.status != 200:
                raise self._refusal(response)
            for value in _values(response):
                yield _event(value)
        except (OSError, http.client.HTTPException) as error:
            raise web.ServerUnreachable(f"the watch at {self.server} was interrupted: {web.describe(error)}") from None
        finally:
            connection.close()

    # Requests

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> bytes:
        """Send a request. If the server has closed the kept connection meanwhile, repeat it on a new one."""
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers() if content is None else dict(self._headers(), **{"Content-Type": kind})
        while True:
            kept, connection = self._kept, self._kept or self._connect(_SECONDS)
            self._kept = None
            try:
                answer = web.exchange(connection, method, path, headers, content, _MOST)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # Also a write is repeated safely: it names the version it is based on, so a second one gets a 409.
                if kept is not None and not web.is_late(error):
                    continue
                self._server_index += 1
                raise web.ServerUnreachable(f"{self.server}: {web.describe(error)}") from None
            self._kept = connection
            self._note(answer.headers)
            if answer.code < 300:
                return answer.content
            refusal = self._error(answer)
            if answer.code >= 500 and len(self._identity.servers) > 1:
                self.close()
                self._server_index += 1
            raise refusal

    def _open(
        self, method: str, path: str, seconds: float
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        connection = self._connect(_SECONDS)
        try:
            connection.request(method, path, headers=self._headers())
            response = connection.getresponse()
            connection.sock.settimeout(seconds)
        except (OSError, http.client.HTTPException, AttributeError) as error:
            connection.close()
            self._server_index += 1
            raise web.ServerUnreachable(f"{self.server}: {web.describe(error)}") from None
        self._note({"date": response.getheader("Date") or ""})
        return connection, response

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        try:
            return web.connect(web.parse(self.server), self._trust, seconds)
        except web.ServerUnreachable:
            self._server_index += 1  # the next attempt goes to the next server
            raise

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": web.USER_AGENT}
        if self._identity.token:
            headers["Authorization"] = f"Bearer {self._identity.token}"
        return headers

    def _note(self, headers: Mapping[str, str]) -> None:
        self.skew = web.skew(headers, time.time())

    def _refusal(self, response: http.client.HTTPResponse) -> ApiError:
        headers = {name.lower(): value for name, value in response.getheaders()}
        error = self._error(web.HttpResponse(response.status, headers, response.read(1 << 16)))
        if response.status >= 500:
            self._server_index += 1
        return error

    def _error(self, answer: web.HttpResponse) -> ApiError:
        try:
            said = formats.parse_json(answer.content).get("message") or ""
        except (ValueError, AttributeError):
            said = ""
        text = f"{self.server} answers {answer.code}: {said or http.client.responses.get(answer.code, 'no reason')}"
        if answer.code == 401:
            text += "; the token of this host is invalid or was revoked"
            words = web.skew_in_words(self.skew)
            text += f"; {words}" if words else ""
        return ApiError(answer.code, text, _seconds(answer.headers.get("retry-after", "")))


def _secret(content: bytes) -> PlanSecret:
    try:
        found = formats.parse_json(content)
        metadata = found["metadata"]
        data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        return PlanSecret(metadata["uid"], metadata["resourceVersion"], data, found)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ApiError(0, "the server's answer is not a Secret") from None


def _values(response: io.BufferedIOBase) -> Iterator[Any]:
    """Yield the JSON values of a stream, each as soon as it is complete. Servers write one per line, or indent them."""
    characters, decoder, text = codecs.getincrementaldecoder("utf-8")(), json.JSONDecoder(), ""
    while True:
        piece = response.read1(_PIECE)
        if not piece:
            if text:
                raise web.ServerUnreachable("the watch ended in the middle of an event")
            return
        try:
            text = (text + characters.decode(piece)).lstrip()
            if len(text) > _MOST or text[:1] not in ("", "{"):
                raise _no_event()
            while text and (b"}" in piece or b"\n" in piece):  # no value ends in the middle of a long string
                value, end = decoder.raw_decode(text)
                yield value
                text = text[end:].lstrip()
        except json.JSONDecodeError as error:
            if not _may_go_on(text, error):
                raise _no_event() from None
        except (ValueError, RecursionError):
            raise _no_event() from None


def _may_go_on(text: str, error: json.JSONDecodeError) -> bool:
    """Return whether more text could complete the value: it ends in a string, or where the decoder stopped."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(text) - _LONGEST_TOKEN


def _no_event() -> web.ServerUnreachable:
    return web.ServerUnreachable("the watch returned an invalid event")


def _event(event: Any) -> tuple[str, str]:
    try:
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(int(thing.get("code") or 0), str(thing.get("message") or "the watch failed"))
        return kind, thing["metadata"]["resourceVersion"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _no_event() from None


def _seconds(text: str) -> float | None:
    try:
        return min(max(float(text), 0.0), 300.0)
    except ValueError:
        return None


def trust_of(identity: AgentConnection) -> ssl.SSLContext:
    trust = web.context(identity.ca_pem)
    if identity.client_certificate:
        _load_certificate(trust, identity.client_certificate)
    return trust


def _load_certificate(trust: ssl.SSLContext, pem: str) -> None:
    import tempfile  # imported late: only tests and old installations have no token

    descriptor, path = tempfile.mkstemp(prefix="remuda-agent-")  # 0600; OpenSSL reads files only
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        trust.load_cert_chain(path)
    finally:
        os.unlink(path)
