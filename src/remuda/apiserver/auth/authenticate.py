"""Authentication: from the peer's certificate and the request's headers to a `User`.

The order is upstream's: client certificate, then bearer token; the first authenticator that knows the caller wins.
Credentials that no authenticator accepts give 401, never anonymous; a request without credentials is system:anonymous.
The log shows why credentials were rejected (the cause of the error), without the credentials; the caller is not told.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remuda.apiserver.auth.jws import decode_segment
from remuda.apiserver.auth.messages import joined
from remuda.apiserver.auth.token_authenticators import Authenticated, TokenAuthenticator
from remuda.apiserver.auth.tokens import DEFAULT_ISSUER, TokenRejected
from remuda.apiserver.auth.user import (
    ANONYMOUS,
    CREDENTIAL_ID,
    UNAUTHENTICATED,
    Headers,
    User,
    header_text,
    marked_authenticated,
)
from remuda.kube import errors

_log = logging.getLogger(__name__)

NOBODY = User(ANONYMOUS, groups=(UNAUTHENTICATED,))
_INVALID = "invalid bearer token"
_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
_WEBSOCKET_TOKEN = "base64url.bearer.authorization.k8s.io."  # noqa: S105  (a prefix, not a secret)
_MOST_CERTIFICATES = 1024


class _CertificateUser:
    __slots__ = ("not_after", "not_before", "problem", "user")

    def __init__(self, der: bytes) -> None:
        self.user: User | None = None
        self.problem = ""
        self.not_before = self.not_after = 0.0
        try:
            certificate = x509.load_der_x509_certificate(der)
            self.not_before = certificate.not_valid_before_utc.timestamp()
            self.not_after = certificate.not_valid_after_utc.timestamp()
            if _is_for_clients(certificate):
                self.user = _user_of_certificate(certificate, der)
            else:
                self.problem = "x509: certificate specifies an incompatible key usage"
        except ValueError:
            self.problem = "x509: malformed certificate"

    def at(self, now: float) -> User | None:
        if self.problem:
            raise TokenRejected(self.problem)
        if not self.not_before <= now <= self.not_after:
            raise TokenRejected("x509: certificate has expired or is not yet valid")
        return self.user


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True  # no restriction
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage


def _user_of_certificate(certificate: x509.Certificate, der: bytes) -> User | None:
    """Return the user of a certificate: its common name, with each organization as a group. Without a common name:
    none.
    """
    names = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not names or not names[-1]:
        return None
    groups = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    uids = [str(name.value) for name in certificate.subject.get_attributes_for_oid(_UID)]
    if len(uids) > 1 or "" in uids:
        raise ValueError("one uid at most")
    fingerprint = f"X509SHA256={hashlib.sha256(der).hexdigest()}"
    user = User(names[-1], uids[0] if uids else "", tuple(groups), {CREDENTIAL_ID: (fingerprint,)})
    return marked_authenticated(user)


class Authenticator:
    """Chain of authenticators. `token_authenticators` are called in order."""

    def __init__(
        self,
        token_authenticators: Sequence[TokenAuthenticator],
        *,
        api_audiences: tuple[str, ...] = (DEFAULT_ISSUER,),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.api_audiences = api_audiences
        self._token_authenticators = list(token_authenticators)
        self._clock = clock
        self._certificates: OrderedDict[bytes, _CertificateUser] = OrderedDict()

    def add(self, authenticator: TokenAuthenticator) -> None:
        """Add an authenticator of tokens, called after the existing ones."""
        self._token_authenticators.append(authenticator)

    def authenticate(self, peer_certificate: bytes | None, headers: Headers) -> User:
        """Authenticate a request. `peer_certificate` is DER, already verified against our CA by TLS. Raise Unauthorized
        (401).
        """
        problems: list[str] = []
        try:
            user = self._by_certificate(peer_certificate) if peer_certificate is not None else None
            if user is not None:
                return user
        except TokenRejected as problem:
            problems.append(str(problem))
        try:
            token = bearer_token(headers) or websocket_token(headers)
            if token:
                return self.authenticate_token(token, self.api_audiences).user
        except TokenRejected as problem:
            problems.append(str(problem))
        if problems:
            _log.info("Unable to authenticate the request: %s", joined(problems))
            raise errors.unauthorized() from TokenRejected(joined(problems))
        return NOBODY

    def _by_certificate(self, der: bytes) -> User | None:
        known = self._certificates.get(der)
        if known is None:
            known = self._certificates[der] = _CertificateUser(der)
            if len(self._certificates) > _MOST_CERTIFICATES:
                self._certificates.popitem(last=False)
        # The parsed certificate is cached, its validity is not: a long-lived connection may outlive its certificate.
        return known.at(self._clock())

    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated:
        """Return the user that a bare token authenticates, system:authenticated included. Raises TokenRejected."""
        problems = [_INVALID]
        for authenticator in self._token_authenticators:
            try:
                found = authenticator.authenticate_token(token, audiences)
            except TokenRejected as problem:
                problems.append(str(problem))
                continue
            if found is not None:
                return Authenticated(marked_authenticated(found.user), found.audiences)
        raise TokenRejected(joined(problems))


def bearer_token(headers: Headers) -> str:
    """Return the token of an Authorization header; empty if there is none, or another scheme."""
    values = headers.get("authorization")
    if not values:
        return ""
    parts = header_text(values[0]).strip().split(" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""


def websocket_token(headers: Headers) -> str:
    """Return the token in a WebSocket subprotocol, which browsers use because they cannot set headers. Raise
    TokenRejected.
    """
    if "sec-websocket-protocol" not in headers or "websocket" not in headers.get("upgrade", ("",))[0].lower():
        return ""
    offered = [part.strip() for value in headers["sec-websocket-protocol"] for part in value.split(",")]
    hidden = [part.removeprefix(_WEBSOCKET_TOKEN) for part in offered if part.startswith(_WEBSOCKET_TOKEN)]
    if not hidden:
        return ""
    if len(hidden) > 1:
        raise TokenRejected("multiple base64.bearer.authorization tokens specified")
    try:
        token = decode_segment(hidden[0].encode("ascii")).decode()
    except ValueError:
        raise TokenRejected("invalid base64.bearer.authorization token encoding") from None
    if token and len(offered) == 1:
        raise TokenRejected("missing additional subprotocol")
    return token
