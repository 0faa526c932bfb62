"""Supervisor: API for servers and agents besides the Kubernetes API.

A server that has the data answers everything; the others answer what they know and forward the rest. A client is a
`server` or a `node`: by the cluster's tokens, by a bootstrap token, or by a node's own certificate.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from remuda.kube.web import Handler, Request, Response, Result, header_block, text
from remuda.lab.nano import tokens
from remuda.lab.nano.flavour import Flavour
from remuda.lab.nano.identity import node_of
from remuda.lab.nano.membership_client import ClusterMember

Caller = Literal["", "node", "server"]

_JSON = header_block([("Content-Type", "application/json")])


class SupervisorCredentials(msgspec.Struct, frozen=True):
    server: str  # a password
    agent: str

    def caller(self, user: str, password: str) -> Caller:
        if user == tokens.SERVER and tokens.same(password, self.server):
            return "server"
        if user == tokens.NODE and (tokens.same(password, self.agent) or tokens.same(password, self.server)):
            return "node"
        return ""

    def __repr__(self) -> str:
        return "<Credentials>"


class Requester(msgspec.Struct, frozen=True):
    caller: Caller
    node: str = ""  # authenticated by its own certificate: it may act only for itself


class ClusterLeader(Protocol):
    """Requests that only the server with the data can answer."""

    async def is_bootstrap_token(self, token: str) -> bool: ...

    async def answer(self, request: Request, path: str, who: Requester) -> Result: ...


class Supervisor:
    """Supervisor. Without a membership, it forwards requests that it cannot answer to the components of this host."""

    def __init__(
        self,
        flavour: Flavour,
        seat: ClusterMember | None,
        ca_pem: bytes,
        credentials: SupervisorCredentials,
        pass_on: Handler | None,
    ) -> None:
        self.leader: ClusterLeader | None = None
        self.take_over: Callable[[Request], Awaitable[Response]] | None = None  # for a member that follows
        self._seat = seat
        self._ca_pem = ca_pem
        self._credentials = credentials
        self._pass_on = pass_on
        self._prefix = f"{flavour.prefix}/"
        self._take_over = f"{flavour.prefix}/etcd/take-over"
        self._own_paths = ("/ping", "/cacerts", "/db/info", f"{flavour.prefix}/cluster")
        challenge = ("WWW-Authenticate", f'Basic realm="{flavour.name}"')
        self._refused = Response(401, b"not authorized\n", header_block([("Content-Type", "text/plain"), challenge]))

    def answers(self, path: str) -> bool:
        return path in self._own_paths or path.startswith(self._prefix)

    def handle(self, request: Request, *, passed_on: bool) -> Result | Awaitable[Result]:
        if request.path == "/ping":
            return text(200, "pong")
        if request.path == "/cacerts":
            return Response(200, self._ca_pem, header_block([("Content-Type", "text/plain")]))
        if request.path in self._own_paths or request.path == self._take_over:
            return self._own(request)
        if self.leader is not None:
            return self._by_leader(request, self.leader)
        if self._pass_on is not None and not passed_on:
            return self._pass_on(request)
        return _nowhere()

    async def _passed_on(self, request: Request) -> Result:
        found = self._pass_on(request) if self._pass_on is not None else _nowhere()
        return await found if isinstance(found, Awaitable) else found

    async def _own(self, request: Request) -> Result:
        local = request.path == "/db/info" and _is_loopback(request.peer.address)
        if not local and (await self._who(request)).caller != "server":
            return self._refused
        if self._seat is None:
            return await self._passed_on(request)
        if request.path == self._take_over:
            if self.take_over is None or request.method != "POST":
                return text(409, "this server cannot take the data\n")
            return await self.take_over(request)
        members = self._seat.standing().members
        if request.path == "/db/info":
            return json_answer({"members": [member.described() for member in members.members]})
        return json_answer(members)

    async def _by_leader(self, request: Request, leader: ClusterLeader) -> Result:
        who = await self._who(request)
        if not who.caller:
            return self._refused
        return await leader.answer(request, request.path.removeprefix(self._prefix), who)

    async def _who(self, request: Request) -> Requester:
        scheme, _, value = request.header(b"authorization").partition(" ")
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return Requester("")
            return Requester(self._credentials.caller(user, password))
        if scheme.lower() == "bearer" and self.leader is not None and await self.leader.is_bootstrap_token(value):
            return Requester("node")
        node = node_of(request.peer.certificate) if request.peer.certificate is not None else ""
        return Requester("node", node) if node else Requester("")


def json_answer(value: object, code: int = 200) -> Response:
    return Response(code, msgspec.json.encode(value), _JSON)


def _nowhere() -> Response:
    return text(503, "the data is with another server\n")


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::1"))
