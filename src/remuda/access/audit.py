"""Audit log: one line for every request at the proxy when it ends (caller, verb, cluster, transport, result), and one
for every denied request elsewhere: at the management API, at the tunnel endpoint, by admission.

The lines are JSON on the logger `remuda.audit`, so that they can be routed separately. They have the path but never the
query, and the name of a token but never the token. The Audit-Id is also in the response, and is sent to the cluster for
its own audit log.

Denied clients cannot fill the disk: the lines per address are limited, and further ones are counted (`unwritten`).
"""

from __future__ import annotations

import asyncio
import logging
import re

import msgspec

from remuda.access.interfaces import Caller
from remuda.kube import clock, random_source
from remuda.kube.attempts import AttemptLimiter
from remuda.kube.errors import StatusError, Unauthorized
from remuda.kube.web import Request
from remuda.runtime import tracing

log = logging.getLogger("remuda.audit")

_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_LONGEST = 1024  # of a path
_LONGEST_NAME = 256  # of an impersonated user or group
_MOST_GROUPS = 16


class Audit:
    """Audit log of one process.

    `burst`, `per_second`: limit of lines per address, for lines that any client can cause.
    """

    def __init__(self, *, burst: float = 60.0, per_second: float = 1.0) -> None:
        self._bounds = AttemptLimiter(burst=burst, per_second=per_second)
        self._unwritten = 0

    def request(self, request: Request) -> AuditEntry:
        return AuditEntry(request, self)

    def refused(
        self,
        address: str,
        code: int,
        verb: str,
        path: str,
        why: str,
        *,
        user: str = "",
        cluster: str = "",
        impersonated: dict[str, object] | None = None,
        id: str = "",
    ) -> None:
        """Write the line of a denied request.

        `user`: who sent the request. `cluster`: the id that was claimed, if any.
        """
        line = _line(id or random_source.uid(), Caller(name=user), address, cluster, verb, path, code)
        if impersonated is not None:
            line["impersonatedUser"] = impersonated
        self.write({**line, "why": why}, bounded=True)

    def write(self, line: dict[str, object], *, bounded: bool) -> None:
        if bounded:
            address, now = _host(str(line["from"])), asyncio.get_running_loop().time()
            if self._bounds.wait(address, now):
                self._unwritten += 1
                return
            self._bounds.failed(address, now)
        if self._unwritten:
            line, self._unwritten = {**line, "unwritten": self._unwritten}, 0
        _write(line)


class AuditEntry:
    """Audit entry of one request. `end` writes it, once."""

    def __init__(self, request: Request, audit: Audit) -> None:
        self.id = id_of(request)
        self.caller = Caller(name="")
        self.cluster = ""
        self.verb = request.method.lower()
        self.path = path_of(request)
        self.through = ""
        self.bytes = 0  # of the answer's body
        self.why = ""  # reason of a denial, if the caller gets another text
        self._method = request.method
        self._traceparent = request.headers.get(b"traceparent", b"").decode("ascii", "replace")
        self._impersonated = impersonated(request)
        self._audit = audit
        self._address = request.peer.address
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._ended = False

    def end(self, code: int, why: str = "") -> None:
        """Write the line. `why`: the reason if the request was denied, failed or ended early."""
        if self._ended:
            return
        self._ended = True
        line = {
            **_line(self.id, self.caller, self._address, self.cluster, self.verb, self.path, code),
            "through": self.through,
            "seconds": round(self._loop.time() - self._began, 6),
            "bytes": self.bytes,
        }
        if self._impersonated is not None:
            line["impersonatedUser"] = self._impersonated
        if why:
            line["why"] = why
        # Only lines of anonymous clients are limited. A user cannot hide a request behind many others.
        self._audit.write(line, bounded=not self.caller.name)
        attributes: tracing.Attributes = {
            "http.request.method": self._method,
            "http.response.status_code": code,
            "remuda.audit_id": self.id,
            "remuda.cluster": self.cluster,
            "remuda.through": self.through,
        }
        seconds = self._loop.time() - self._began
        # An anonymous client may neither join a trace of others nor have its requests sampled.
        joined = self._traceparent if self.caller.name else None
        tracing.record("proxy request", seconds, attributes, failed=code >= 500, traceparent=joined)


def id_of(request: Request) -> str:
    """Return the Audit-Id of the caller if it is valid, else a new one."""
    given = request.headers.get(b"audit-id", b"")
    return given.decode() if _GIVEN.fullmatch(given) else random_source.uid()


def path_of(request: Request) -> str:
    """Return the path of a request without what precedes it in an absolute target, which may hold a password."""
    return request.target.partition("?")[0] if request.target.startswith("/") else request.path


def impersonated(request: Request) -> dict[str, object] | None:
    """Return whom the request asks to impersonate (Impersonate-User, Impersonate-Group), permitted or not, or None."""
    if not any(name.startswith(b"impersonate-") for name in request.headers):
        return None
    users = _texts(request, b"impersonate-user")
    groups = _texts(request, b"impersonate-group")
    return {"username": users[0] if users else "", "groups": groups}


def _texts(request: Request, header: bytes) -> list[str]:
    """Return the values of a header, limited, because the sender chooses them and the line is stored."""
    values = request.header_values(header)[:_MOST_GROUPS]
    return [value.encode("latin-1").decode("utf-8", "replace")[:_LONGEST_NAME] for value in values]


def reason(error: StatusError) -> str:
    """Return why a request was denied. A 401 has the credential error as its cause: for the log, not for the caller."""
    return str(error.__cause__) if isinstance(error, Unauthorized) and error.__cause__ is not None else error.message


def refused_by_admission(user: str, verb: str, path: str, code: int, why: str) -> None:
    """Write the audit line of a write that admission denied.

    The API server has authenticated its user, and knows the address that the request came from.
    """
    _write({**_line(random_source.uid(), Caller(name=user), "", "", verb, path, code), "why": why})


def _line(id: str, caller: Caller, address: str, cluster: str, verb: str, path: str, code: int) -> dict[str, object]:
    return {
        "time": clock.now(),
        "auditID": id,
        "user": caller.name,
        "token": caller.token,
        "from": address,
        "cluster": cluster,
        "verb": verb,
        "path": path[:_LONGEST],
        "code": code,
    }


def _write(line: dict[str, object]) -> None:
    log.info("%s", msgspec.json.encode(line).decode())


def _host(address: str) -> str:
    return address.rpartition(":")[0] or address
