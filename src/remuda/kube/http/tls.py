"""TLS context of one identity. The server is always verified, unless the kubeconfig disables that.

OpenSSL reads keys from files only. The key is written to memory that has a file name for a moment (Linux), or else to a
private file that is removed before the function returns: no key stays on disk.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remuda.kube.kubeconfig import KubeconfigError


def client_context(
    *, ca_pem: bytes = b"", certificate_pem: bytes = b"", key_pem: bytes = b"", insecure: bool = False, origin: str = ""
) -> ssl.SSLContext:
    """Return the TLS context. Raise KubeconfigError, which names `origin`, for an invalid certificate or key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # As in Go: every certificate of the CA file is trusted, also an intermediate one. STRICT is the default since
    # Python 3.13 and refuses CAs that kubectl accepts.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem:
        _load_authorities(context, ca_pem, origin)
    else:
        context.load_default_certs()
    if certificate_pem:
        load_pair(context, certificate_pem, key_pem, origin)
    return context


def _load_authorities(context: ssl.SSLContext, pem: bytes, origin: str) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise KubeconfigError(f"the certificate authority of {origin} is not a PEM certificate") from None


def load_pair(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes, origin: str) -> None:
    """Load a certificate and its key. Raise KubeconfigError, which names `origin`, if they are invalid or
    do not match.
    """

    def no_password() -> bytes:
        raise KubeconfigError(f"the key of {origin} is encrypted: store it without a password")

    with _as_file(certificate_pem.rstrip() + b"\n" + key_pem) as path:
        try:
            context.load_cert_chain(path, password=no_password)
        except (ssl.SSLError, ValueError):
            why = "are not a PEM certificate and its PEM key"
            raise KubeconfigError(f"the certificate and key of {origin} {why}") from None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    if sys.platform == "linux":
        descriptor = os.memfd_create("client-key", os.MFD_CLOEXEC)
        try:
            _write_all(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, name = tempfile.mkstemp()
    try:
        try:
            _write_all(descriptor, content)
        finally:
            os.close(descriptor)
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
