"""Kubeconfigs made from a cluster's CA: who they are for, until when, and which CAs cannot be used."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from remuda.capi.cluster.kubeconfig import make_kubeconfig
from remuda.kube import kubeconfig
from remuda.runtime.outcome import Retryable
from tests.controllers.certificates import authority


def decoded(config: dict[str, Any], part: str, field: str) -> bytes:
    return base64.b64decode(config[part + "s"][0][part][field])


@pytest.mark.parametrize("algorithm", ["ec", "rsa"])
def test_kubeconfig_contains_cluster_admin_certificate_valid_for_one_year(algorithm: str) -> None:
    data = authority(algorithm)
    config = make_kubeconfig("c", "api.example.com", 6443, data)
    assert config["clusters"][0]["name"] == "c"
    assert config["clusters"][0]["cluster"]["server"] == "https://api.example.com:6443"
    assert decoded(config, "cluster", "certificate-authority-data") == data["tls.crt"]
    assert config["users"][0]["name"] == "c-admin"
    assert config["contexts"] == [{"name": "c-admin@c", "context": {"cluster": "c", "user": "c-admin"}}]
    assert config["current-context"] == "c-admin@c"

    certificate = x509.load_pem_x509_certificate(decoded(config, "user", "client-certificate-data"))
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(data["tls.crt"]))
    assert certificate.subject.rfc4514_string() == "CN=kubernetes-admin,O=system:masters"
    lifetime = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < lifetime <= datetime.timedelta(days=365)
    key = serialization.load_pem_private_key(decoded(config, "user", "client-key-data"), None)
    assert key.public_key() == certificate.public_key()


def test_kubeconfig_certificate_does_not_outlive_its_ca() -> None:
    data = authority(days=10)
    config = make_kubeconfig("c", "h", 1, data)
    certificate = x509.load_pem_x509_certificate(decoded(config, "user", "client-certificate-data"))
    assert certificate.not_valid_after_utc == x509.load_pem_x509_certificate(data["tls.crt"]).not_valid_after_utc


def test_kubeconfig_with_ipv6_endpoint_is_parsed() -> None:
    config = make_kubeconfig("c", "fd00::1", 443, authority())
    access = kubeconfig.parse(msgspec.json.encode(config))
    assert access.server == "https://[fd00::1]:443"


def _edwards() -> bytes:
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "cannot read the CA in Secret c-ca: "),
        ({"tls.crt": b"nonsense", "tls.key": b"nonsense"}, "cannot read the CA in Secret c-ca: "),
        ({"tls.crt": authority()["tls.crt"]}, "cannot read the CA in Secret c-ca: "),
        (
            {"tls.crt": authority()["tls.crt"], "tls.key": _edwards()},
            "cannot use the CA in Secret c-ca: tls.key is neither RSA nor EC",
        ),
    ],
)
def test_unusable_ca_error_names_the_secret(data: dict[str, bytes], words: str) -> None:
    with pytest.raises(Retryable, match=words):
        make_kubeconfig("c", "h", 1, data)
