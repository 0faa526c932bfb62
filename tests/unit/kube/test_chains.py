"""Certificates of somebody else's making: what they are good for, and what nobody would believe."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from remuda.kube import chains
from remuda.kube.chains import Chain, UnusableChain
from tests.lab.certificates import Authority, key_pem, new_key
from tests.lab.chains import CompanyAuthority

COMPANY = CompanyAuthority()
NAME = "remuda.example.com"


def made(*names: str, days: float = 90, since: float = 0.01) -> Chain:
    return chains.parse(*COMPANY.certificate(*(names or (NAME,)), days=days, since=since))


def judged(chain: Chain, host: str = NAME, authorities: bytes = COMPANY.root) -> None:
    chains.judge(chain, host, authorities, datetime.now(UTC))


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        ([NAME], NAME, True),
        ([NAME], "REMUDA.Example.com.", True),
        ([NAME], "other.example.com", False),
        (["*.example.com"], NAME, True),
        (["*.example.com"], "a.b.example.com", False),
        (["*.example.com"], "example.com", False),
        ([NAME, "10.0.0.1"], "10.0.0.1", True),
        ([NAME, "10.0.0.1"], "10.0.0.2", False),
        (["fd00::1"], "fd00:0:0::1", True),
    ],
)
def test_certificate_chain_covers_hosts_as_tls_clients_verify(names: list[str], host: str, covered: bool) -> None:
    chain = made(*names)
    assert chain.covers(host) is covered
    if not host.endswith("."):  # OpenSSL does not take the dot away
        assert (chains.refusal(chain, host, COMPANY.root) == "") is covered
    if covered:
        judged(chain, host.rstrip("."))
    else:
        with pytest.raises(UnusableChain, match=", not for"):
            judged(chain, host)


def test_trusted_certificate_chain_is_accepted() -> None:
    judged(made())
    judged(made("*.example.com"), "")  # whatever it is called


@pytest.mark.parametrize(
    ("days", "since", "said"), [(-1, 2, "expired on "), (90, -1, "is not valid before "), (90, 1, "")]
)
def test_expired_or_not_yet_valid_certificate_is_rejected(days: float, since: float, said: str) -> None:
    chain = made(days=days, since=since)
    if not said:
        judged(chain)
        return
    with pytest.raises(UnusableChain, match=said):
        judged(chain)


def test_certificate_of_untrusted_ca_is_rejected() -> None:
    with pytest.raises(UnusableChain, match=r"clients would not trust the certificate: unable to get .*issuer"):
        judged(made(), authorities=CompanyAuthority("Elsewhere").root)


def test_incomplete_certificate_chain_is_rejected() -> None:
    pem, key = COMPANY.certificate(NAME)
    alone = chains.parse(pem.removesuffix(COMPANY.between), key)
    with pytest.raises(UnusableChain, match="would not trust"):
        judged(alone)


def test_certificate_chain_root_is_detected_only_if_matching() -> None:
    pem, key = COMPANY.certificate(NAME)
    assert chains.parse(pem, key).root == b""
    assert chains.parse(pem + COMPANY.root, key).root == COMPANY.root
    assert chains.parse(pem + CompanyAuthority("Elsewhere").root, key).root == b""


def test_strict_verification_requires_ca_extensions() -> None:
    authority = Authority("without the usual extensions")
    chain = chains.parse(*authority.server("127.0.0.1"))
    assert chains.refusal(chain, "localhost", authority.pem) == ""
    assert chains.refusal(chain, "localhost", authority.pem, strict=True)
    assert chains.refusal(made(), NAME, COMPANY.root, strict=True) == ""


def test_invalid_certificate_or_key_is_rejected() -> None:
    pem, key = COMPANY.certificate(NAME)
    locked = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    for certificate, beside, said in (
        (b"no", key, "has no certificate in PEM"),
        (pem, b"no", "no private key in PEM"),
        (pem, key_pem(new_key()), "the key does not belong to the first certificate"),
        (COMPANY.root + pem, key, "must begin with the certificate of the server"),
        (pem, locked, "is encrypted"),
    ):
        with pytest.raises(UnusableChain, match=said):
            chains.parse(certificate, beside)


def test_certificate_chain_representation_hides_key() -> None:
    assert repr(made()) == f"<Chain for {NAME}>"


def test_ca_bundle_contains_each_certificate_once() -> None:
    other = CompanyAuthority("Elsewhere").root
    assert chains.bundle(COMPANY.root, b"", other + COMPANY.root) == COMPANY.root + other
