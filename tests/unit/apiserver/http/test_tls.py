"""The same connection under TLS: client certificates, handshakes that never end, and plain text on a TLS port."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.http.listener import Listener
from remuda.kube.web import Request, Response, Result
from tests.lab.limits import LIMIT_SECONDS

from .fakes import Client


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate with its key, which serves as everyone's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def server_context(pair: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    context.load_verify_locations(pair)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(pair: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair)
    return context


def describe(request: Request) -> Result:
    certificate = request.peer.certificate
    shown = x509.load_der_x509_certificate(certificate).subject.rfc4514_string() if certificate else "nobody"
    return Response(200, f"{shown} from {request.peer.address.split(':')[0]}".encode() * int(request.first("n") or 1))


async def test_tls_connection_exposes_client_certificate_and_serves_large_responses(pair: Path) -> None:
    listener = Listener(describe)
    await listener.start("127.0.0.1", 0, server_context(pair))
    try:
        for used, expected in ((pair, b"CN=me from 127.0.0.1"), (None, b"nobody from 127.0.0.1")):
            streams = await asyncio.open_connection("127.0.0.1", listener.port, ssl=client_context(used))
            client = Client(*streams)
            for times in (1, 100_000, 1):
                assert (await client.ask("GET", f"/?n={times}")).body == expected * times
            client.close()
    finally:
        await listener.stop(1)


async def test_client_without_tls_handshake_is_disconnected(pair: Path) -> None:
    listener = Listener(describe, HttpLimits(handshake_timeout=0.1))
    await listener.start("127.0.0.1", 0, server_context(pair))
    try:
        silent = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
        assert await silent.is_closed()
        plain = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
        plain.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        with contextlib.suppress(ConnectionError):  # a reset, if the server drops it before it reads the request
            await asyncio.wait_for(plain.reader.read(), LIMIT_SECONDS)
        assert not listener.connections
    finally:
        await listener.stop(1)
