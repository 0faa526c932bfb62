"""The supervisor: what servers and agents ask a server before and beside the API.

A server that keeps the data answers everything; the others answer what they know themselves and pass the rest on.
Whoever asks is a `server` or a `node`: by the cluster's tokens, by a bootstrap token, or by a node's own certificate.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from remuda.kube.web import Handler, Request, Response, Result, header_block, text
from remuda.nano import tokens
from remuda.nano.certificate_user import node_of
from remuda.nano.seat import Seat

Caller = Literal["", "node", "server"]

_JSON = header_block([("Content-Type", "application/json")])
_PREFIX = "/v1-nano/"
_OWN = ("/ping", "/cacerts", "/db/info", "/v1-nano/cluster")
_TAKE_OVER = "/v1-nano/etcd/take-over"
_CHALLENGE = header_block([("Content-Type", "text/plain"), ("WWW-Authenticate", 'Basic realm="nano"')])


class Credentials(msgspec.Struct, frozen=True):
    server: str  # passwords
    agent: str

    def caller(self, user: str, password: str) -> Caller:
        if user == tokens.SERVER and tokens.same(password, self.server):
            return "server"
        if user == tokens.NODE and (tokens.same(password, self.agent) or tokens.same(password, self.server)):
            return "node"
        return ""

    def __repr__(self) -> str:
        return "<Credentials>"


class Who(msgspec.Struct, frozen=True):
    caller: Caller
    node: str = ""  # by its own certificate: it may speak for itself alone


class Office(Protocol):
    """What only the server with the data can answer."""

    async def is_bootstrap_token(self, token: str) -> bool: ...

    async def answer(self, request: Request, path: str, who: Who) -> Result: ...


class Supervisor:
    def __init__(
        self, seat: Seat, ca_pem: bytes, credentials: Credentials, office: Office | None, pass_on: Handler | None
    ) -> None:
        self.office = office
        self.take_over: Callable[[Request], Awaitable[Response]] | None = None  # by a member that follows
        self._seat = seat
        self._ca_pem = ca_pem
        self._credentials = credentials
        self._pass_on = pass_on

    def answers(self, path: str) -> bool:
        return path in _OWN or path.startswith(_PREFIX)

    def handle(self, request: Request, *, passed_on: bool) -> Result | Awaitable[Result]:
        if request.path == "/ping":
            return text(200, "pong")
        if request.path == "/cacerts":
            return Response(200, self._ca_pem, header_block([("Content-Type", "text/plain")]))
        if request.path in _OWN or request.path == _TAKE_OVER:
            return self._own(request)
        if self.office is not None:
            return self._official(request, self.office)
        if self._pass_on is not None and not passed_on:
            return self._pass_on(request)
        return text(503, "the data is with another server\n")

    async def _own(self, request: Request) -> Response:
        local = request.path == "/db/info" and _is_loopback(request.peer.address)
        if not local and (await self._who(request)).caller != "server":
            return _refused()
        if request.path == _TAKE_OVER:
            if self.take_over is None or request.method != "POST":
                return text(409, "this server cannot take the data\n")
            return await self.take_over(request)
        members = self._seat.standing().members
        if request.path == "/db/info":
            return json_answer({"members": [member.described() for member in members.members]})
        return json_answer(members)

    async def _official(self, request: Request, office: Office) -> Result:
        who = await self._who(request)
        if not who.caller:
            return _refused()
        return await office.answer(request, request.path.removeprefix(_PREFIX), who)

    async def _who(self, request: Request) -> Who:
        scheme, _, value = request.header(b"authorization").partition(" ")
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return Who("")
            return Who(self._credentials.caller(user, password))
        if scheme.lower() == "bearer" and self.office is not None and await self.office.is_bootstrap_token(value):
            return Who("node")
        node = node_of(request.peer.certificate) if request.peer.certificate is not None else ""
        return Who("node", node) if node else Who("")


def json_answer(value: object, code: int = 200) -> Response:
    return Response(code, msgspec.json.encode(value), _JSON)


def _refused() -> Response:
    return Response(401, b"not authorized\n", _CHALLENGE)


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::1"))
