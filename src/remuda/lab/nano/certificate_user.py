"""The node a client certificate is of. TLS has verified that it is from the cluster's own authority."""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

NODES = "system:nodes"
PREFIX = "system:node:"


def node_of(der: bytes) -> str:
    """Return the name of the node that a certificate belongs to; empty when it belongs to no node."""
    subject = x509.load_der_x509_certificate(der).subject
    groups = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if NODES in groups and len(names) == 1 and names[0].startswith(PREFIX):
        return names[0].removeprefix(PREFIX)
    return ""
