"""Proxy for /k8s/clusters/<id>/…: forwards a request to that cluster, impersonating the caller.

    authenticate → check the target → authorize for the cluster → get its transport → forward → relay the response

What must stay true:
- The caller's credentials are never forwarded, and requests are forwarded only in the caller's own name.
- Every request ends with one audit line, whatever its outcome.
- A long-running request ends when its caller loses access (`active_requests`).
- A truncated response never looks complete: a watch ends with an ERROR event, anything else by closing the connection.
- A slow caller slows down the cluster's response, with bounded memory here. When one side closes, so does the other.
- A cluster that does not answer affects no other cluster: the number of waiting requests per cluster is limited.
- Only reads, and requests that were never sent, get a Retry-After: others may already have taken effect.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import cast

import aiohttp
import msgspec

from remuda.access import headers, upgrades
from remuda.access.active_requests import ActiveRequest, ActiveRequests
from remuda.access.audit import Audit, AuditEntry, reason
from remuda.access.cluster_transport import READS
from remuda.access.interfaces import Caller, Identify, MayReach, Transport, Transports
from remuda.access.paths import ClusterRequest, RequestVerb, asked, judge
from remuda.kube.errors import StatusError, bad_request, forbidden_request, service_unavailable, too_many_requests
from remuda.kube.http.transport import plainly
from remuda.kube.web import STATUS_LINES, CutShort, Request, Response, Result, Sink, Stream, Upgrade, header_block

_DECIDE_SECONDS = 20.0  # for authentication and authorization
_ANSWER_SECONDS = 65.0  # to the first byte, unless open-ended; a little more than the limit of API servers
_WHOLE_UP_TO = 128 * 1024  # responses up to this size are read completely before they are relayed
_REFUSED = (("Cache-Control", "no-cache, private"), ("Content-Type", "application/json"))


class Proxy:
    """Proxy. `at_once`: requests to one cluster that may wait for a response at the same time; further ones get a
    429."""

    def __init__(
        self,
        identify: Identify,
        may_reach: MayReach,
        ways: Transports,
        *,
        active_requests: ActiveRequests | None = None,
        audit: Audit | None = None,
        at_once: int = 400,
    ) -> None:
        self.at_once = at_once
        self.active_requests = active_requests or ActiveRequests(may_reach)
        self._audit = audit or Audit()
        self._waiting: Counter[str] = Counter()
        self._identify = identify
        self._may_reach = may_reach
        self._ways = ways

    def serve(self, request: Request) -> Awaitable[Result]:
        """A `kube.web.Handler`."""
        request.unhurried = True  # each wait here has its own limit, or must have none
        return self._serve(request, self._audit.request(request))

    async def _serve(self, request: Request, entry: AuditEntry) -> Result:
        try:
            return await self._forward(request, entry)
        except StatusError as error:
            entry.end(error.code, entry.why or reason(error))
            return _refusal(error, entry)
        except asyncio.CancelledError:
            entry.end(499, "the client disconnected before the response")
            raise
        except Exception as error:
            entry.end(500, f"failed: {type(error).__name__}")
            raise

    async def _forward(self, request: Request, entry: AuditEntry) -> Result:
        with ExitStack() as held:
            async with _within(_DECIDE_SECONDS, "timed out while authorizing the request"):
                # Authenticate first, so that the audit line of a bad request names its caller.
                entry.caller = await self._identify(request)
                wanted, what = self._judge(request, entry)
                # Register the request before it is authorized. A permission that is revoked between the two would
                # otherwise stay in use.
                call = held.enter_context(
                    self.active_requests.begin(entry.caller, wanted.cluster, lasting=what.open_ended)
                )
                # Add the impersonation headers after the filter, so that no header of the caller can remove or change
                # them.
                sent = headers.onward(headers.of(request)) + headers.caller_headers(entry.caller)
                # Authorize before the cluster is looked up: without permission the answer is 403, whether or not the
                # cluster exists.
                await self._permit(entry)
                way = held.enter_context(await self._ways.of(wanted.cluster))
            entry.through = way.through
            sent.append(("Audit-Id", entry.id))
            with self._slot(wanted.cluster), _interruptible(call, entry, what):
                protocol = headers.upgrade_of(request)
                if protocol:
                    return await _upgraded(request, wanted, way, sent, protocol, entry, call, held)
                body = None if request.content_length == 0 else await request.body()
                answer = await _answer(way, request, wanted, what, sent, body)
                held.callback(answer.close)
                _check(answer.status, way)
                return await _relay(request, answer, way, what, entry, call, held)

    def _judge(self, request: Request, entry: AuditEntry) -> tuple[ClusterRequest, RequestVerb]:
        wanted = judge(request.method, request.target)
        what = asked(request.method, wanted)
        entry.cluster, entry.verb, entry.path = wanted.cluster, what.verb, wanted.path
        return wanted, what

    @contextmanager
    def _slot(self, cluster: str) -> Iterator[None]:
        if self._waiting[cluster] >= self.at_once:
            raise too_many_requests(f"{self.at_once} requests are already waiting for the cluster {cluster}")
        self._waiting[cluster] += 1
        try:
            yield
        finally:
            self._waiting[cluster] -= 1
            if not self._waiting[cluster]:
                del self._waiting[cluster]

    async def _permit(self, entry: AuditEntry) -> None:
        caller, cluster = entry.caller, entry.cluster
        why_not = await self._may_reach(caller, cluster)
        if why_not:
            entry.why = why_not
            raise _forbidden(caller, cluster)


# Requests


@contextmanager
def _interruptible(call: ActiveRequest, entry: AuditEntry, what: RequestVerb) -> Iterator[None]:
    """Interrupt an open-ended request when its caller loses access.

    Any other request ends soon, and may have taken effect.
    """
    if not what.open_ended:
        yield
        return
    try:
        with call.interrupting():
            yield
    except StatusError:
        entry.why = call.why
        raise


@asynccontextmanager
async def _within(seconds: float, otherwise: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise StatusError(504, "Timeout", otherwise) from None


async def _answer(
    way: Transport,
    request: Request,
    wanted: ClusterRequest,
    what: RequestVerb,
    sent: list[headers.Header],
    body: bytes | None,
) -> aiohttp.ClientResponse:
    seconds = None if what.open_ended else _ANSWER_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await way.request(request.method, wanted.target, sent, body)
    except (
        aiohttp.ClientConnectorCertificateError,
        aiohttp.ClientConnectorError,
        aiohttp.ConnectionTimeoutError,
    ) as error:
        raise way.unreachable(_not_reached(way, error)) from None
    except TimeoutError:
        text = f"the API of the cluster {way.cluster} has not answered within {_ANSWER_SECONDS:g} seconds"
        raise StatusError(504, "Timeout", text) from None
    except (aiohttp.ClientError, OSError) as error:
        lost = way.unreachable(f"the connection was lost before it answered: {plainly(error)}")
        if request.method in READS:
            raise lost from None
        raise service_unavailable(f"{lost.message}; the request may have taken effect") from None


def _not_reached(way: Transport, error: Exception) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLError):
        untrusted = getattr(inner, "verify_message", "")
        why = f"its certificate is not trusted: {untrusted}" if untrusted else f"TLS handshake failed: {inner.reason}"
    else:
        why = plainly(inner)
    return why if way.through == "tunnel" else f"cannot reach {way.server}: {why}"


def _check(status: int, way: Transport) -> None:
    """Raise an error for a status that is the manager's fault and not the caller's."""
    # A 401 would tell the caller that its own token is invalid.
    if status == 401:
        raise service_unavailable(f"the API of the cluster {way.cluster} does not accept this manager's credentials")
    if status not in STATUS_LINES:
        raise StatusError(502, "", f"the API of the cluster {way.cluster} answered with the invalid status {status}")


# Responses


async def _upgraded(
    request: Request,
    wanted: ClusterRequest,
    way: Transport,
    sent: list[headers.Header],
    protocol: str,
    entry: AuditEntry,
    call: ActiveRequest,
    held: ExitStack,
) -> Result:
    if request.content_length != 0:
        raise bad_request("a request to upgrade the connection must not have a body")
    try:
        async with _within(_ANSWER_SECONDS, f"the API of the cluster {way.cluster} has not answered in time"):
            far, answer = await upgrades.ask(way, request.method, wanted.target, sent, protocol)
    except OSError as error:
        raise way.unreachable(_not_reached(way, error)) from None
    held.callback(far.transport.close)
    _check(answer.status, way)
    if answer.status != 101:
        entry.bytes = len(answer.body)
        entry.end(answer.status)
        return Response(answer.status, answer.body, _block(answer.headers, entry))
    # The upgraded connection outlives this call, so it takes over what must be released at its end.
    joined = _Joined(far, entry, call, held.pop_all())
    agreed = next((value for name, value in answer.headers if name.lower() == "upgrade"), protocol)
    return Upgrade(joined.accept, header_block([("Upgrade", agreed)]) + _block(answer.headers, entry))


class _Joined:
    """Upgraded connection to a cluster, to be joined with the caller's. It is closed too if the caller leaves
    before."""

    def __init__(self, far: upgrades.FarEnd, entry: AuditEntry, call: ActiveRequest, held: ExitStack) -> None:
        self._far = far
        self._entry = entry
        self._call = call
        self._held = held

    def __del__(self) -> None:
        self._held.close()

    def accept(self, transport: object, rest: bytes) -> object:
        near = upgrades.JoinedConnection(self._ended)
        near.connection_made(cast(asyncio.Transport, transport))
        self._far.join(near)
        if rest:
            self._far.send(rest)
        self._call.when_ended(lambda: self._cut(near))
        return near

    def _cut(self, near: upgrades.JoinedConnection) -> None:
        self._far.transport.abort()
        near.transport.abort()

    def _ended(self, sent: int) -> None:
        self._entry.bytes = sent
        self._entry.end(101, self._call.why)
        self._held.close()


async def _relay(
    request: Request,
    answer: aiohttp.ClientResponse,
    way: Transport,
    what: RequestVerb,
    entry: AuditEntry,
    call: ActiveRequest,
    held: ExitStack,
) -> Result:
    block = _block(answer.headers.items(), entry)
    length = answer.content_length
    no_body = request.method == "HEAD" or answer.status in (204, 304)
    # A response that is read completely before it is relayed can still become a 503 if the connection is lost.
    if no_body or (length is not None and length <= _WHOLE_UP_TO):
        try:
            async with _within(_ANSWER_SECONDS, f"the API of the cluster {way.cluster} has stopped answering"):
                body = await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            lost = way.unreachable(_cut_short(error))
            raise lost if request.method in READS else service_unavailable(lost.message) from None
        entry.bytes = len(body)
        entry.end(answer.status)
        return Response(answer.status, body, block)
    return Stream(_Copy(answer, way, what, entry, call, held.pop_all()), block, answer.status)


# A watch event is one line, or several indented lines of which the last is a brace. An ERROR event can be added only
# after a complete event.
_BETWEEN_EVENTS = (b"", b"{}\n", b"}\n")


class _Copy:
    """Relay of a response of unknown length. It releases its resources even if it is never run."""

    def __init__(
        self,
        answer: aiohttp.ClientResponse,
        way: Transport,
        what: RequestVerb,
        entry: AuditEntry,
        call: ActiveRequest,
        held: ExitStack,
    ) -> None:
        self._answer = answer
        self._way = way
        self._entry = entry
        self._call = call
        self._held = held
        self._can_send_events = what.verb == "watch" and _is_json(answer)
        self._last_line = b""  # of the answer so far, see `_last_line`

    def __del__(self) -> None:
        self._held.close()

    async def __call__(self, sink: Sink) -> None:
        entry, status = self._entry, self._answer.status
        try:
            with self._call.interrupting():
                await self._copy(sink)
            entry.end(status)
        except asyncio.CancelledError:
            entry.end(status, "the client disconnected, or this server is stopping")
            raise
        except StatusError as ended:
            entry.end(status, self._call.why)
            self._report_end(sink, ended)
        except (aiohttp.ClientError, OSError) as error:
            lost = self._way.unreachable(_cut_short(error))
            entry.end(status, lost.message)
            self._report_end(sink, lost)
        finally:
            self._held.close()

    async def _copy(self, sink: Sink) -> None:
        while piece := await self._answer.content.readany():
            self._last_line = _last_line(self._last_line, piece)
            sink.write(piece)
            self._entry.bytes += len(piece)
            await sink.drain()

    def _report_end(self, sink: Sink, why: StatusError) -> None:
        """Report that the response ended early: in a last watch event, or else by cutting the connection."""
        if not (self._can_send_events and self._last_line in _BETWEEN_EVENTS):
            raise CutShort(why.message)
        sink.write(msgspec.json.encode({"type": "ERROR", "object": why.status()}) + b"\n")


def _last_line(before: bytes, piece: bytes) -> bytes:
    """Return the last line so far: its first byte, its last byte and its newline."""
    line = piece if before.endswith(b"\n") else before + piece
    line = line[line.rfind(b"\n", 0, -1) + 1 :]
    return line if len(line) <= 3 else line[:1] + line[-2:]


def _cut_short(error: Exception) -> str:
    text = "the connection was lost while it answered"
    # Other errors describe internals of aiohttp.
    return f"{text}: {plainly(error)}" if isinstance(error, OSError) else text


def _is_json(answer: aiohttp.ClientResponse) -> bool:
    plain = answer.headers.get("Content-Encoding", "identity") == "identity"
    return answer.status == 200 and plain and answer.content_type == "application/json"


def _block(found: Iterable[headers.Header], entry: AuditEntry) -> bytes:
    return header_block([*headers.back(found), ("Audit-Id", entry.id)])


def _refusal(error: StatusError, entry: AuditEntry) -> Response:
    found = [*_REFUSED, ("Audit-Id", entry.id), *error.headers.items()]
    if error.code in (503, 504):
        # For discovery requests kubectl replaces the message of these codes by its own, but it shows warnings.
        said = "".join(" " if not character.isprintable() else character for character in error.message)
        escaped = said.replace("\\", "\\\\").replace('"', '\\"')
        found.append(("Warning", f'299 - "{escaped}"'))
    return Response(error.code, msgspec.json.encode(error.status()), header_block(found))


def _forbidden(caller: Caller, cluster: str) -> StatusError:
    return forbidden_request(
        "management.cattle.io", "clusters", cluster, f'User "{caller.name}" may not reach this cluster'
    )
