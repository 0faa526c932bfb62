"""API that only the server with the data answers: certificates of nodes, the cluster's keys, reports and joins."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from remuda.kube import certificates, clock
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.names import dns1123_subdomain
from remuda.kube.web import Request, Response, Result, header_block, text
from remuda.lab.nano import authorities, passwords, tokens
from remuda.lab.nano.identity import NODE_GROUP, NODE_USER_PREFIX, TlsIdentity
from remuda.lab.nano.leader import Leader, MemberRemoved
from remuda.lab.nano.members import MemberRefused
from remuda.lab.nano.membership_client import Heartbeat
from remuda.lab.nano.serving_certificates import LEAF_DAYS
from remuda.lab.nano.supervisor import Requester, json_answer

log = logging.getLogger(__name__)

_PEM = header_block([("Content-Type", "text/plain")])
_BOOTSTRAP_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_MOST_REQUEST = 64 * 1024

_Answer = Callable[[Request, Requester], Awaitable[Result]]


class LeaderApi:
    """API of the leader. `client` is the engine's own; `shared_config` is the part of a server's configuration that all
    nodes may read.
    """

    def __init__(self, leader: Leader, identity: TlsIdentity, client: Client, shared_config: Mapping[str, Any]) -> None:
        self._leader = leader
        self._identity = identity
        self._client = client
        self._shared_config = shared_config
        self._flavour = identity.layout.flavour
        self._for_nodes: dict[tuple[str, str], _Answer] = {
            ("GET", "readyz"): self._ready,
            ("GET", "config"): self._config,
            ("GET", "apiservers"): self._apiservers,
            ("GET", "client-ca.crt"): self._client_ca,
            ("GET", "server-ca.crt"): self._server_ca,
            ("POST", "client-kubelet.crt"): self._client_kubelet,
            ("POST", "serving-kubelet.crt"): self._serving_kubelet,
        }
        self._for_servers: dict[tuple[str, str], _Answer] = {
            ("GET", "server-bootstrap"): self._bootstrap,
            ("POST", "etcd/join"): self._join,
            ("POST", "etcd/heartbeat"): self._heartbeat,
        }

    def add(self, method: str, path: str, answer: _Answer) -> None:
        """Add an endpoint for servers."""
        self._for_servers[method, path] = answer

    async def answer(self, request: Request, path: str, who: Requester) -> Result:
        key = (request.method, path)
        known = self._for_nodes.get(key) or self._for_servers.get(key)
        if known is None:
            return text(404, "404 page not found\n")
        if key in self._for_servers and who.caller != "server":
            return text(403, "forbidden: only servers may ask for this\n")
        try:
            return await known(request, who)
        except StatusError as error:
            return text(503 if error.code >= 500 else error.code, f"{error}\n")
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            return text(400, f"{error}\n")

    async def is_bootstrap_token(self, token: str) -> bool:
        found = _BOOTSTRAP_TOKEN.fullmatch(token)
        if found is None:
            return False
        try:
            stored = await self._client.get(passwords.SECRETS, passwords.NAMESPACE, f"bootstrap-token-{found[1]}")
        except StatusError:
            return False
        data = {k: _decoded(v) for k, v in (msgspec.json.decode(stored).get("data") or {}).items()}
        expires = data.get("expiration", "")
        return (
            tokens.same(found[2], data.get("token-secret", ""))
            and data.get("usage-bootstrap-authentication") == "true"
            and (not expires or clock.parse(expires) > clock.time())
        )

    # -- for nodes -----------------------------------------------------------------------------------------------

    async def _ready(self, request: Request, who: Requester) -> Response:
        standing = self._leader.standing()
        if not standing.leader:
            return text(500, "etcd: no leader\n")
        if not standing.apiservers:
            return text(503, "no server of this cluster answers for the API yet\n")
        return text(200, "ok")

    async def _config(self, request: Request, who: Requester) -> Response:
        return json_answer(self._shared_config)

    async def _apiservers(self, request: Request, who: Requester) -> Response:
        return json_answer([url.removeprefix("https://") for url in self._leader.standing().apiservers])

    async def _client_ca(self, request: Request, who: Requester) -> Response:
        return Response(200, self._identity.authorities.pem("client-ca"), _PEM)

    async def _server_ca(self, request: Request, who: Requester) -> Response:
        return Response(200, self._identity.server_ca_pem, _PEM)

    async def _client_kubelet(self, request: Request, who: Requester) -> Response:
        node, public_key = await self._admitted(request, who)
        authority = self._identity.authorities.client
        made = authority.sign_client(public_key, NODE_USER_PREFIX + node, (NODE_GROUP,), LEAF_DAYS, _now())
        return Response(200, certificates.certificate_pem(made), _PEM)

    async def _serving_kubelet(self, request: Request, who: Requester) -> Response:
        node, public_key = await self._admitted(request, who)
        names = [node, "localhost", "127.0.0.1", *_addresses(request.header(self._header("Node-IP")))]
        made = self._identity.authorities.server.sign_server(public_key, node, names, LEAF_DAYS, _now())
        return Response(200, certificates.certificate_pem(made), _PEM)

    async def _admitted(
        self, request: Request, who: Requester
    ) -> tuple[str, ec.EllipticCurvePublicKey | rsa.RSAPublicKey]:
        """Return the node that gets a certificate, and its public key. Raises StatusError."""
        node, password = (request.header(self._header(name)) for name in ("Node-Name", "Node-Password"))
        if not node or dns1123_subdomain(node):
            raise StatusError(400, "BadRequest", f"the header {self._flavour.header('Node-Name')} names no node")
        if who.node and who.node != node:
            raise StatusError(403, "Forbidden", f"the certificate of {who.node} is not good for {node}")
        if not password:
            raise StatusError(403, "Forbidden", f"the header {self._flavour.header('Node-Password')} is missing")
        try:
            wish = x509.load_der_x509_csr(await request.body(_MOST_REQUEST))
        except ValueError:
            raise StatusError(400, "BadRequest", "the body is no certificate request") from None
        key = wish.public_key()
        if not wish.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
            raise StatusError(400, "BadRequest", "the certificate request is not signed by an EC or RSA key")
        try:
            # Check the password last: the first one for a name is stored, and the request must be valid by then.
            await passwords.check(self._client, self._flavour.name, node, password)
        except passwords.WrongPassword as wrong:
            log.warning("%s", wrong)
            raise StatusError(403, "Forbidden", str(wrong)) from None
        return node, key

    def _header(self, name: str) -> bytes:
        return self._flavour.header(name).lower().encode()

    # -- for servers ---------------------------------------------------------------------------------------------

    async def _bootstrap(self, request: Request, who: Requester) -> Response:
        return json_answer(authorities.shared(self._identity.layout))

    async def _join(self, request: Request, who: Requester) -> Response:
        report = msgspec.json.decode(await request.body(_MOST_REQUEST), type=Heartbeat)
        if not report.member:  # not a member of etcd: it only asks which server has the data
            return json_answer(self._leader.members)
        try:
            return json_answer(self._leader.join(report.as_member()))
        except MemberRefused as refused:
            log.warning("denied the join request of %s: %s", report.member, refused)
            return text(503, f"{refused}\n")

    async def _heartbeat(self, request: Request, who: Requester) -> Response:
        report = msgspec.json.decode(await request.body(_MOST_REQUEST), type=Heartbeat)
        try:
            return json_answer(self._leader.hear(report))
        except MemberRemoved as removed:
            return text(410, f"{removed}\n")


def _addresses(header: str) -> list[str]:
    found = []
    for part in header.split(","):
        try:
            found.append(str(ipaddress.ip_address(part.strip())))
        except ValueError:
            continue
    return found


def _decoded(value: str) -> str:
    return base64.b64decode(value).decode(errors="replace")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
