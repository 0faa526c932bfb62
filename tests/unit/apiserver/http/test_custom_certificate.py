"""The user's own certificate beside ours: who is shown which, and what becomes of a renewal."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from remuda.apiserver.http import custom_certificate
from remuda.apiserver.http.custom_certificate import CustomCertificate
from remuda.kube.chains import UnusableChain
from remuda.kube.http.tls import load_pair
from tests.lab.chains import CompanyAuthority, write

OURS, COMPANY = CompanyAuthority("Ours"), CompanyAuthority("Ranch")
NAME = "remuda.example.com"

Shown = Callable[[str | None], str]


@pytest.fixture(autouse=True)
def looks_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_certificate, "_LOOK_SECONDS", 0.0)


def bare() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def shown_by(one: CustomCertificate) -> Shown:
    """Whose certificate who asks for that name is shown."""
    own = bare()
    load_pair(own, *OURS.certificate("localhost", "127.0.0.1"), "ours")
    context = one.beside(own, bare)

    def shown(name: str | None) -> str:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.load_verify_locations(cadata=(OURS.root + COMPANY.root).decode())
        there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
        asking = client.wrap_bio(here, there, server_hostname=name)
        answering = context.wrap_bio(there, here, server_side=True)
        for end in (asking, answering, asking):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        found = asking.getpeercert()
        assert found is not None
        return str(dict(part[0] for part in found["issuer"])["commonName"]).split()[0]  # type: ignore[misc, arg-type, index]

    return shown


def test_custom_certificate_is_served_only_for_its_server_name(tmp_path: Path) -> None:
    shown = shown_by(CustomCertificate(*COMPANY.files(tmp_path, NAME), NAME))
    assert {name: shown(name) for name in (NAME, "localhost", None)} == {
        NAME: "Ranch",
        "localhost": "Ours",
        None: "Ours",
    }


def test_custom_certificate_for_an_address_is_served_without_sni(tmp_path: Path) -> None:
    shown = shown_by(CustomCertificate(*COMPANY.files(tmp_path, NAME, "10.0.0.1"), "10.0.0.1"))
    assert {name: shown(name) for name in ("localhost", None)} == {"localhost": "Ours", None: "Ranch"}


def test_renewed_custom_certificate_is_served_without_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = CustomCertificate(*COMPANY.files(tmp_path, NAME), NAME)
    shown, before = shown_by(one), one.chain
    chain, key = COMPANY.certificate(NAME, "later.example.com", key=rsa.generate_private_key(65537, 2048))
    write(tmp_path, chain, key)  # without the root: what is trusted stays what it was
    assert shown("later.example.com") == "Ranch"
    assert one.chain != before
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        (lambda: CompanyAuthority("Elsewhere").certificate(NAME), "clients would not trust"),
        (lambda: COMPANY.certificate("other.example.com"), ", not for remuda.example.com"),
        (lambda: (COMPANY.certificate(NAME)[0], COMPANY.certificate(NAME)[1]), "the key does not belong to"),
        (lambda: COMPANY.certificate(NAME, days=-1, since=2), "expired on"),
        (lambda: (b"", b""), "has no certificate in PEM"),
    ],
)
def test_unusable_renewed_certificate_is_logged_once_and_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, certificate: Callable[[], tuple[bytes, bytes]], said: str
) -> None:
    one = CustomCertificate(*COMPANY.files(tmp_path, NAME), NAME)
    shown, before = shown_by(one), one.chain
    write(tmp_path, *certificate())
    assert [shown(NAME) for _ in range(3)] == ["Ranch"] * 3
    assert one.chain == before
    (message,) = caplog.messages
    assert said in message
    assert "still serving the previous one" in message
    write(tmp_path, *COMPANY.certificate(NAME))
    assert shown(NAME) == "Ranch"
    assert one.chain != before


def test_expiring_custom_certificate_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shown = shown_by(CustomCertificate(*COMPANY.files(tmp_path, NAME, days=29.5), NAME))
    shown(NAME)
    (message,) = caplog.messages
    assert "expires in 29 days" in message
    assert caplog.records[0].levelno == logging.WARNING


def test_unusable_certificate_or_key_file_raises_unfit(tmp_path: Path) -> None:
    chain, key = COMPANY.files(tmp_path, NAME)
    for paths, said in (
        ((tmp_path / "none", key), "none cannot be read: No such file"),
        ((chain, tmp_path / "none"), "none cannot be read: No such file"),
        ((key, key), "has no certificate in PEM"),
        ((chain, chain), "no private key in PEM"),
    ):
        with pytest.raises(UnusableChain, match=said):
            CustomCertificate(*paths, NAME)
    key.chmod(0o644)
    with pytest.raises(UnusableChain, match="can be read by everybody on this machine: chmod o-r"):
        CustomCertificate(chain, key, NAME)


def test_certificate_chain_without_root_requires_server_ca(tmp_path: Path) -> None:
    files = COMPANY.files(tmp_path, NAME, root=False)
    with pytest.raises(UnusableChain, match="append that certificate to the file, or name its file with --server-ca"):
        CustomCertificate(*files, NAME)
    assert CustomCertificate(*files, NAME, COMPANY.root).authorities == COMPANY.root
    with pytest.raises(UnusableChain, match="would not trust"):
        CustomCertificate(*files, NAME, OURS.root)
