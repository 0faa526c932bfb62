from __future__ import annotations

import base64
import datetime
import hashlib
import logging
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from remuda.apiserver.auth.authenticate import Authenticator
from remuda.apiserver.auth.token_authenticators import (
    Authenticated,
    StaticTokens,
    TokenFileError,
    read_token_file,
)
from remuda.apiserver.auth.tokens import DEFAULT_ISSUER, TokenRejected
from remuda.apiserver.auth.user import User
from remuda.kube import certificates
from remuda.kube.errors import StatusError

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
API = (DEFAULT_ISSUER,)
TOKENS = StaticTokens([("s3cret", User("tess", "7", ("testers",)))], API)


class Clock:
    now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


def authority() -> certificates.Authority:
    key = certificates.new_key()
    return certificates.Authority(certificates.make_ca(key, "ca", 10, NOW), key)


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def client(common_name: str = "jane", organizations: tuple[str, ...] = ("dev", "ops")) -> bytes:
    return der(authority().issue_client(certificates.new_key(), common_name, organizations, 1, NOW))


def refused(authenticator: Authenticator, certificate: bytes | None, headers: dict[str, list[str]]) -> None:
    with pytest.raises(StatusError) as caught:
        authenticator.authenticate(certificate, headers)
    assert (caught.value.code, caught.value.reason) == (401, "Unauthorized")
    assert caught.value.message == "Unauthorized"


def bearer(token: str) -> dict[str, list[str]]:
    return {"authorization": [f"Bearer {token}"]}


def test_request_without_credentials_is_anonymous() -> None:
    user = Authenticator([TOKENS]).authenticate(None, {})
    assert (user.name, user.groups) == ("system:anonymous", ("system:unauthenticated",))


def test_client_certificate_maps_common_name_and_organizations_to_user() -> None:
    certificate = client()
    authenticator = Authenticator([], clock=Clock())
    user = authenticator.authenticate(certificate, {})
    assert (user.name, user.groups) == ("jane", ("dev", "ops", "system:authenticated"))
    fingerprint = f"X509SHA256={hashlib.sha256(certificate).hexdigest()}"
    assert user.extra == {"authentication.kubernetes.io/credential-id": (fingerprint,)}
    assert authenticator.authenticate(certificate, {}) is user  # read once


def test_cached_client_certificate_still_expires() -> None:
    clock = Clock()
    authenticator = Authenticator([], clock=clock)
    certificate = client()
    authenticator.authenticate(certificate, {})
    clock.now += 25 * 3600
    refused(authenticator, certificate, {})
    clock.now -= 26 * 3600
    refused(authenticator, certificate, {})


def test_server_certificate_is_rejected_for_client_authentication() -> None:
    certificate = der(authority().issue_server(certificates.new_key(), ["x"], 1, NOW))
    refused(Authenticator([], clock=Clock()), certificate, {})


def test_certificate_without_common_name_is_anonymous() -> None:
    key = certificates.new_key()
    name = x509.Name([])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + datetime.timedelta(days=1))
    certificate = der(builder.sign(key, hashes.SHA256()))
    authenticator = Authenticator([TOKENS], clock=Clock())
    assert authenticator.authenticate(certificate, {}).name == "system:anonymous"
    assert authenticator.authenticate(certificate, bearer("s3cret")).name == "tess"


def test_malformed_client_certificate_is_rejected() -> None:
    refused(Authenticator([]), b"rubbish", {})


def test_client_certificate_takes_precedence_over_token() -> None:
    authenticator = Authenticator([TOKENS], clock=Clock())
    assert authenticator.authenticate(client(), bearer("s3cret")).name == "jane"
    assert authenticator.authenticate(client(), bearer("wrong")).name == "jane"


def test_valid_token_is_accepted_despite_invalid_certificate() -> None:
    assert Authenticator([TOKENS]).authenticate(b"rubbish", bearer("s3cret")).name == "tess"


def test_certificate_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.apiserver.auth.authenticate._MOST_CERTIFICATES", 2)
    authenticator = Authenticator([TOKENS])
    for n in range(5):
        refused(authenticator, b"rubbish%d" % n, {})
    assert len(authenticator._certificates) == 2


@pytest.mark.parametrize("header", ["Bearer s3cret", "bearer s3cret", "  Bearer s3cret  ", "BEARER s3cret more"])
def test_bearer_token_authenticates_user(header: str) -> None:
    user = Authenticator([TOKENS]).authenticate(None, {"authorization": [header]})
    assert user == User("tess", "7", ("testers", "system:authenticated"))


@pytest.mark.parametrize("header", ["", "Bearer", "Basic dGVzczp4", "Bearer  s3cret", "s3cret"])
def test_other_authorization_headers_are_anonymous(header: str) -> None:
    assert Authenticator([TOKENS]).authenticate(None, {"authorization": [header]}).name == "system:anonymous"


@pytest.mark.parametrize("token", ["wrong", "s3cre", "s3crett", "\udcff"])
def test_unknown_token_is_rejected_with_401(token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refused(Authenticator([TOKENS]), None, bearer(token))
    assert "invalid bearer token" in caplog.text
    assert token not in caplog.text


def test_websocket_subprotocol_bearer_token_authenticates() -> None:
    hidden = "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(b"s3cret").decode().rstrip("=")
    upgrade = {"upgrade": ["websocket"]}
    authenticator = Authenticator([TOKENS])
    good = {**upgrade, "sec-websocket-protocol": [f"v5.channel.k8s.io, {hidden}"]}
    assert authenticator.authenticate(None, good).name == "tess"
    assert authenticator.authenticate(None, {"sec-websocket-protocol": [f"x, {hidden}"]}).name == "system:anonymous"
    assert authenticator.authenticate(None, {**upgrade, "sec-websocket-protocol": ["x"]}).name == "system:anonymous"
    refused(authenticator, None, {**upgrade, "sec-websocket-protocol": [hidden]})
    refused(authenticator, None, {**upgrade, "sec-websocket-protocol": [f"x, {hidden}, {hidden}"]})
    refused(authenticator, None, {**upgrade, "sec-websocket-protocol": [f"x, {hidden}%%"]})
    wrong = "base64url.bearer.authorization.k8s.io.AAAA"
    refused(authenticator, None, {**upgrade, "sec-websocket-protocol": [f"x, {wrong}"]})


class Picky:
    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        if token == "expired":
            raise TokenRejected("that one is too old")
        return Authenticated(User("ext"), audiences) if token == "theirs" else None


def test_additional_token_authenticator_is_used() -> None:
    authenticator = Authenticator([TOKENS])
    refused(authenticator, None, bearer("theirs"))
    authenticator.add(Picky())
    assert authenticator.authenticate(None, bearer("theirs")).groups == ("system:authenticated",)
    with pytest.raises(TokenRejected, match=r"^\[invalid bearer token, that one is too old\]$"):
        authenticator.authenticate_token("expired", API)
    with pytest.raises(TokenRejected, match=r"^invalid bearer token$"):
        authenticator.authenticate_token("nobodys", API)


def test_token_rejected_by_first_authenticator_is_tried_by_next() -> None:
    users = StaticTokens([("expired", User("tess"))], API)
    assert Authenticator([Picky(), users]).authenticate(None, bearer("expired")).name == "tess"


def test_static_token_is_rejected_for_other_audience() -> None:
    assert TOKENS.authenticate_token("s3cret", ("vault",)) is None


def test_token_file_is_parsed_and_errors_do_not_leak_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('t1,jane,1,"dev,ops"\nt2,joe,2\n\n,empty,3\nt3,jim,4,\n')
    assert read_token_file(path) == [
        ("t1", User("jane", "1", ("dev", "ops"))),
        ("t2", User("joe", "2")),
        ("t3", User("jim", "4")),
    ]
    path.write_text("t1,jane,1\nverysecret,joe\n")
    with pytest.raises(TokenFileError, match="found 2 in record 2") as caught:
        read_token_file(path)
    assert "verysecret" not in str(caught.value)


def test_bearer_token_is_decoded_as_utf_8() -> None:
    authenticator = Authenticator([StaticTokens([("schlüssel", User("tess"))], API)])
    assert authenticator.authenticate(None, bearer("schlüssel".encode().decode("latin-1"))).name == "tess"
