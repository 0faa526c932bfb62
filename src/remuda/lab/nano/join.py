"""Joining a cluster: a server gets the cluster's keys and an etcd membership; every node gets its certificates."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.kube import certificates
from remuda.kube.http.tls import client_context
from remuda.lab.nano import authorities, membership_client, tokens
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.facts import NodeDescription
from remuda.lab.nano.layout import NanoLayout, read_or_none, write_file
from remuda.lab.nano.members import MemberList
from remuda.lab.nano.membership_client import Heartbeat
from remuda.lab.nano.supervisor_client import Caller, NoAnswer, UnexpectedAnswer, trusted_authorities
from remuda.lab.nano.tokens import JoinToken

log = logging.getLogger(__name__)

AGAIN_SECONDS = 2.0


def member_name(layout: NanoLayout, node: str) -> str:
    """Return this node's member name in etcd. It is stored before the first report, so that joining is idempotent."""
    known = read_or_none(layout.member_name)
    if known is not None:
        return known.decode().strip()
    made = f"{node}-{secrets.token_hex(4)}"
    write_file(layout.member_name, made.encode())
    return made


async def join_as_server(
    server: str, token: JoinToken, layout: NanoLayout, own: Heartbeat, common: Mapping[str, Sequence[str]]
) -> MemberList:
    """Retry until the join is accepted. Raise FatalError if it never will be."""
    if token.user and token.user != tokens.SERVER:
        raise FatalError("this is an agent token; a server needs the server token to join")
    said = ""
    while True:
        try:
            return await _join_once(server, token, layout, own, common)
        except NoAnswer as error:
            why = str(error)
        except UnexpectedAnswer as answered:
            if answered.code in (401, 403):
                raise FatalError(f"{server} refused to let this server join: {answered.text}") from None
            why = answered.text
        if why != said:
            log.warning("waiting to join %s: %s", server, why)
            said = why
        await asyncio.sleep(AGAIN_SECONDS)


async def _join_once(
    server: str, token: JoinToken, layout: NanoLayout, own: Heartbeat, common: Mapping[str, Sequence[str]]
) -> MemberList:
    pem = await trusted_authorities(server, token, read_or_none(layout.tls / "server-ca.crt"))
    caller = Caller(client_context(ca_pem=pem, origin=server), token, tokens.SERVER)
    supervisor = f"{server}{layout.flavour.prefix}"
    try:
        bootstrap = await caller.ask_json("GET", f"{supervisor}/server-bootstrap")
        authorities.accept(layout, {name: base64.b64decode(text) for name, text in bootstrap.items()})
        _compare(common, await caller.ask_json("GET", f"{supervisor}/config"))
        answer = await caller.ask("POST", f"{supervisor}/etcd/join", body=msgspec.json.encode(own))
        members = msgspec.json.decode(answer, type=MemberList)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
        raise NoAnswer(f"{server} answers what no server says: {error}") from None
    finally:
        await caller.close()
    # Save last: a server that is killed before this asks again, with the same member name.
    membership_client.save(layout.cluster, members)
    return members


def _compare(common: Mapping[str, Sequence[str]], theirs: Mapping[str, Any]) -> None:
    for key, values in common.items():
        other = tuple((theirs.get("common") or {}).get(key) or ())
        if tuple(values) != other:
            raise FatalError(
                f"critical configuration value mismatch between servers: {key} is {', '.join(values) or 'not set'} "
                f"here and {', '.join(other) or 'not set'} in the cluster"
            )


async def node_certificates(
    caller: Caller, server: str, facts: NodeDescription, layout: NanoLayout, password: str
) -> None:
    """Request the node's certificates. Raise UnexpectedAnswer, NoAnswer."""
    flavour = layout.flavour
    headers = {
        flavour.header("Node-Name"): facts.name,
        flavour.header("Node-Password"): password,
        flavour.header("Node-IP"): ",".join((*facts.addresses, *facts.external_addresses)),
    }
    for name in ("client-kubelet", "serving-kubelet"):
        key = _key(layout.agent / f"{name}.key")
        wish = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
        body = wish.public_bytes(serialization.Encoding.DER)
        url = f"{server}{flavour.prefix}/{name}.crt"
        write_file(layout.agent / f"{name}.crt", await caller.ask("POST", url, body=body, headers=headers), 0o644)
    for name in ("client-ca", "server-ca"):
        content = await caller.ask("GET", f"{server}{flavour.prefix}/{name}.crt")
        if read_or_none(layout.agent / f"{name}.crt") != content:
            write_file(layout.agent / f"{name}.crt", content, 0o644)


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key of the node, which never leaves its host; create it if there is none."""
    pem = read_or_none(path)
    if pem is not None:
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except ValueError:
            key = None
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key
    made = certificates.new_key()
    write_file(path, certificates.key_pem(made))
    return made
