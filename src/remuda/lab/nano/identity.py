"""TLS identity of a server, the certificates it trusts, and the node that a client certificate belongs to.

A server that does not keep the data terminates its clients' TLS and forwards their requests, with the client's
certificate in a header. The leader trusts that header only from a peer with the certificate of the front proxy, which
only servers have: so a client is the same user, with the same groups, whichever server it asks. TLS has verified that
a client certificate is from the cluster's own authority.
"""

from __future__ import annotations

import base64
import ssl
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from remuda.kube import certificates
from remuda.kube.http.tls import client_context
from remuda.kube.web import Peer, Request
from remuda.lab.nano.authorities import Authorities
from remuda.lab.nano.layout import NanoLayout
from remuda.lab.nano.serving_certificates import AUTH_PROXY

CLIENT_CERTIFICATE = b"x-nano-client-certificate"
SAME_HOST = b"x-nano-same-host"  # the supervisor of this host forwarded it: treated as if its client had sent it here
_MOST_CERTIFICATE = 16 * 1024
NODE_GROUP = "system:nodes"
NODE_USER_PREFIX = "system:node:"


class TlsIdentity:
    def __init__(self, layout: NanoLayout, authorities: Authorities) -> None:
        self.layout = layout
        self.authorities = authorities
        self.server_ca_pem = authorities.pem("server-ca")
        self._is_proxy = lru_cache(maxsize=64)(self._judge)

    def server_context(self) -> ssl.SSLContext:
        """Return the server's TLS context. A client certificate is optional; it belongs to a client or to a forwarding
        server.
        """
        tls = self.layout.tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(tls / "serving-kube-apiserver.crt", tls / "serving-kube-apiserver.key")
        for name in ("client-ca", "request-header-ca"):
            context.load_verify_locations(cadata=self.authorities.pem(name).decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        # The authorities that users deliver may be intermediate CAs.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["http/1.1"])
        return context

    def proxy_context(self) -> ssl.SSLContext:
        """Return the TLS context for forwarded requests."""
        tls = self.layout.tls
        return client_context(
            ca_pem=self.server_ca_pem,
            certificate_pem=(tls / "client-auth-proxy.crt").read_bytes(),
            key_pem=(tls / "client-auth-proxy.key").read_bytes(),
            origin="client-auth-proxy",
        )

    def unwrap(self, request: Request) -> bool:
        """Make a forwarded request look as if its client had asked here; return whether another host forwarded it.

        The headers about client certificates are ignored unless the peer is a server.
        """
        # Remove the headers from every request: any client could send them.
        shown = request.headers.pop(CLIENT_CERTIFICATE, b"")
        same_host = request.headers.pop(SAME_HOST, b"")
        peer = request.peer
        if peer.certificate is None or not self._is_proxy(peer.certificate):
            return False
        request.peer = _Forwarded(peer, _decoded(shown))
        return not same_host

    def _judge(self, der: bytes) -> bool:
        certificate = x509.load_der_x509_certificate(der)
        names = [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return names == [AUTH_PROXY] and certificates.is_issued_by(
            certificate, self.authorities.request_header.certificate
        )


class _Forwarded:
    """Client of a request that another server has forwarded."""

    def __init__(self, server: Peer, certificate: bytes | None) -> None:
        self._server = server
        self.certificate = certificate

    @property
    def address(self) -> str:
        return self._server.address

    async def read_body(self, request: Request, limit: int) -> bytes:
        return await self._server.read_body(request, limit)


def _decoded(shown: bytes) -> bytes | None:
    if not shown or len(shown) > _MOST_CERTIFICATE:
        return None
    return base64.b64decode(shown, validate=True)


def node_of(der: bytes) -> str:
    """Return the name of the node that a certificate belongs to; empty when it belongs to no node."""
    subject = x509.load_der_x509_certificate(der).subject
    groups = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if NODE_GROUP in groups and len(names) == 1 and names[0].startswith(NODE_USER_PREFIX):
        return names[0].removeprefix(NODE_USER_PREFIX)
    return ""
