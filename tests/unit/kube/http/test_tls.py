"""TLS contexts made of bytes."""

from __future__ import annotations

import ssl
import sys
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from remuda.kube.http import tls
from remuda.kube.kubeconfig import KubeconfigError
from tests.lab.certificates import Authority, new_key


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("tls")


def test_client_context_verifies_server_unless_insecure(authority: Authority) -> None:
    for context in (tls.client_context(ca_pem=authority.pem), tls.client_context()):
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    context = tls.client_context(insecure=True)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_client_context_trusts_only_given_cas(authority: Authority) -> None:
    assert len(tls.client_context(ca_pem=authority.pem + Authority("other").pem).get_ca_certs()) == 2


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_client_context_leaves_no_key_on_disk(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    certificate, key = authority.client("me")
    tls.client_context(certificate_pem=certificate, key_pem=key)
    with pytest.raises(KubeconfigError, match="of FILE are not a PEM certificate and its PEM key"):
        tls.client_context(certificate_pem=certificate, key_pem=authority.client("me")[1], origin="FILE")
    assert not list(tmp_path.iterdir())


def test_invalid_certificate_error_names_its_origin(authority: Authority) -> None:
    for ca in (b"no certificate", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(KubeconfigError, match="the certificate authority of FILE"):
            tls.client_context(ca_pem=ca, origin="FILE")
    with pytest.raises(KubeconfigError, match="of FILE are not"):
        tls.client_context(certificate_pem=b"none", key_pem=b"none", origin="FILE")


def test_encrypted_client_key_is_rejected_without_prompt(authority: Authority) -> None:
    locked = new_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"pw")
    )
    with pytest.raises(KubeconfigError, match="of FILE is encrypted"):
        tls.client_context(certificate_pem=authority.client("me")[0], key_pem=locked, origin="FILE")
