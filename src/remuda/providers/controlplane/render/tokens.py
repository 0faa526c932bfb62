"""Tokens by which a host authenticates when it joins. A worker never has the token of servers.

A worker's token contains the fingerprint of the cluster's CA, so that the worker joins no other cluster. A server's
token must be the bare one: the first server makes it the password of all.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from remuda.providers.controlplane.planner.observation import Cluster, Host

SERVER_AUTHORITY = "server/tls/server-ca.crt"  # a key of Cluster.authorities


def settings(cluster: Cluster, host: Host) -> dict[str, Any]:
    if host.roles.server:
        return {"token": cluster.tokens.server, "agent-token": cluster.tokens.agent}
    authority = cluster.authorities.get(SERVER_AUTHORITY, b"")
    pinned = f"K10{fingerprint(authority)}::node:{cluster.tokens.agent}" if authority else cluster.tokens.agent
    return {"token": pinned}


@lru_cache(maxsize=256)
def fingerprint(authority: bytes) -> str:
    """As distributions reckon it: of the file if it is one certificate, else of the root the first one leads to."""
    certificates = x509.load_pem_x509_certificates(authority)
    if len(certificates) == 1:
        return hashlib.sha256(authority).hexdigest()
    by_subject = {certificate.subject: certificate for certificate in reversed(certificates)}
    root = certificates[0]
    for _ in certificates:
        root = by_subject.get(root.issuer, root)
    return hashlib.sha256(root.public_bytes(Encoding.DER)).hexdigest()
