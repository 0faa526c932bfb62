"""One line for every request at the proxy, when it has ended: who did what where, by which way, and how it went.

JSON on the logger `remuda.audit`, so that it can be sent elsewhere than the rest. It has the path but never the query,
and the name of a token but never the token. The same Audit-Id is in the answer, and goes on to the cluster, whose own
audit log has it too.
"""

from __future__ import annotations

import asyncio
import logging
import re

import msgspec

from remuda.access.seams import Caller
from remuda.kube import chance, clock
from remuda.kube.web import Request

log = logging.getLogger("remuda.audit")

_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_LONGEST = 1024  # of a path


class Entry:
    """Of one request. Written once, by `end`."""

    def __init__(self, request: Request) -> None:
        given = request.headers.get(b"audit-id", b"")
        self.id = given.decode() if _GIVEN.fullmatch(given) else chance.uid()
        self.caller = Caller(name="")
        self.cluster = ""
        self.verb = request.method.lower()
        # What stands before the path of an absolute target may be a password.
        self.path = request.target.partition("?")[0] if request.target.startswith("/") else request.path
        self.through = ""
        self.bytes = 0  # of the answer's body
        self.why = ""  # it was refused, where the caller is not told in the same words
        self._address = request.peer.address
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._ended = False

    def end(self, code: int, why: str = "") -> None:
        """`why`: it was refused, or came to nothing, or ended early."""
        if self._ended:
            return
        self._ended = True
        line = {
            "time": clock.now(),
            "auditID": self.id,
            "user": self.caller.name,
            "token": self.caller.token,
            "from": self._address,
            "cluster": self.cluster,
            "verb": self.verb,
            "path": self.path[:_LONGEST],
            "code": code,
            "through": self.through,
            "seconds": round(self._loop.time() - self._began, 6),
            "bytes": self.bytes,
        }
        if why:
            line["why"] = why
        log.info("%s", msgspec.json.encode(line).decode())
