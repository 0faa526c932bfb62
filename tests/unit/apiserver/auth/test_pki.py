from __future__ import annotations

import datetime
import socket
import ssl
import stat
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remuda.apiserver.auth import pki
from remuda.kube import certificates
from tests.lab.limits import LIMIT_SECONDS


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_first_start_creates_all_pki_files(tmp_path: Path) -> None:
    made = pki.prepare(tmp_path, listen_address="192.0.2.7", extra_names=["remuda.example"])
    folder = tmp_path / "pki"
    assert set(contents(folder)) == {
        *("ca.crt", "ca.key", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key", "sa.key", "sa.pub")
    }
    for path in folder.glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    names = certificates.alternative_names(load(folder / "apiserver.crt"))
    assert names >= {
        *("localhost", "127.0.0.1", "::1", "192.0.2.7", "remuda.example", socket.gethostname().lower()),
        *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    }
    admin = load(folder / "admin.crt")
    assert [a.value for a in admin.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["kubernetes-admin"]
    assert [a.value for a in admin.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:masters"]
    assert made.admin.certificate_pem == (folder / "admin.crt").read_bytes()
    ca = load(folder / "ca.crt")
    assert ca.not_valid_after_utc - ca.not_valid_before_utc > datetime.timedelta(days=3649)
    assert isinstance(made.token_key, ec.EllipticCurvePrivateKey)


def test_second_start_leaves_pki_files_unchanged(tmp_path: Path) -> None:
    pki.prepare(tmp_path)
    before = contents(tmp_path / "pki")
    pki.prepare(tmp_path)
    assert contents(tmp_path / "pki") == before


def test_pki_preparation_is_fast(tmp_path: Path) -> None:
    began = time.process_time()
    pki.prepare(tmp_path)
    assert time.process_time() - began < 0.05


def test_new_dns_names_renew_only_the_serving_certificate(tmp_path: Path) -> None:
    pki.prepare(tmp_path)
    before = contents(tmp_path / "pki")
    pki.prepare(tmp_path, extra_names=["new.example", "2001:DB8::1"])
    after = contents(tmp_path / "pki")
    assert {name for name in before if before[name] != after[name]} == {"apiserver.crt", "apiserver.key"}
    assert certificates.alternative_names(load(tmp_path / "pki/apiserver.crt")) >= {"new.example", "2001:db8::1"}
    pki.prepare(tmp_path, extra_names=["2001:db8::1"])  # fewer names are covered by what is there
    assert contents(tmp_path / "pki") == after


@pytest.mark.parametrize("days", [20, 400])
def test_leaf_certificates_are_renewed_before_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    pki.prepare(tmp_path)
    before = contents(tmp_path / "pki")
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=365 - days if days < 365 else days)
    monkeypatch.setattr(pki, "_now", lambda: later)
    pki.prepare(tmp_path)
    after = contents(tmp_path / "pki")
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"apiserver.crt", "apiserver.key", "admin.crt", "admin.key"}


@pytest.mark.parametrize(
    "name", ["ca.crt", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key", "sa.key", "sa.pub"]
)
def test_missing_pki_file_is_recreated(tmp_path: Path, name: str) -> None:
    pki.prepare(tmp_path)
    old_ca = load(tmp_path / "pki/ca.crt")
    (tmp_path / "pki" / name).unlink()
    again = pki.prepare(tmp_path)
    assert (tmp_path / "pki" / name).exists()
    for leaf in ("apiserver", "admin"):
        certificate = load(tmp_path / f"pki/{leaf}.crt")
        assert certificates.is_issued_by(certificate, old_ca)  # whoever trusted us before still does
    again.server_context()


def test_pki_start_interrupted_at_any_write_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = 0
    real = pki._write

    class Killed(Exception):
        pass

    for at in range(20):
        root = tmp_path / str(at)
        count = 0

        def dies(path: Path, content: bytes, *, secret: bool = False, at: int = at) -> None:
            nonlocal count
            if count == at:
                path.with_name(path.name + ".new").write_bytes(content[:10])  # torn
                raise Killed
            count += 1
            real(path, content, secret=secret)

        monkeypatch.setattr(pki, "_write", dies)
        try:
            pki.prepare(root)
        except Killed:
            writes += 1
        monkeypatch.setattr(pki, "_write", real)
        pki.prepare(root).server_context()
        assert not list((root / "pki").glob("*.new"))
    assert writes == 8


def test_mismatched_leaf_key_is_replaced(tmp_path: Path) -> None:
    pki.prepare(tmp_path)
    (tmp_path / "pki/apiserver.key").write_bytes(certificates.key_pem(certificates.new_key()))
    pki.prepare(tmp_path).server_context()


def test_missing_ca_key_raises_pki_error_with_remedy(tmp_path: Path) -> None:
    pki.prepare(tmp_path)
    (tmp_path / "pki/ca.key").unlink()
    with pytest.raises(pki.PkiError, match=r"ca\.key is missing.*restore the key"):
        pki.prepare(tmp_path)
    assert not (tmp_path / "pki/ca.key").exists()


def test_broken_key_error_names_file_without_leaking_content(tmp_path: Path) -> None:
    pki.prepare(tmp_path)
    (tmp_path / "pki/sa.key").write_text("-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n")
    with pytest.raises(pki.PkiError) as caught:
        pki.prepare(tmp_path)
    assert "sa.key" in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_private_key_file_mode_is_restored_to_0600(tmp_path: Path) -> None:
    pki.prepare(tmp_path)
    for path in (tmp_path / "pki").glob("*.key"):
        path.chmod(0o644)
    pki.prepare(tmp_path)
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "pki").glob("*.key")} == {0o600}


def test_wildcard_listen_address_is_not_a_serving_name(tmp_path: Path) -> None:
    assert "0.0.0.0" not in pki.serving_names("0.0.0.0", ())
    assert "::" not in pki.serving_names("[::]", ())


def test_issued_client_certificate_has_organizations_and_client_auth_usage(tmp_path: Path) -> None:
    pair = pki.prepare(tmp_path).issue_client_certificate("jane", ["dev", "ops"], days=7)
    certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [a.value for a in organizations] == ["dev", "ops"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert b"PRIVATE KEY" in pair.key_pem


# ---- over real TLS ------------------------------------------------------------------------------------------------


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[bytes | None, str | None, str | None]:
    """(the client's certificate as the server saw it, the TLS version, the ALPN protocol)."""
    left, right = socket.socketpair()
    left.settimeout(LIMIT_SECONDS)
    right.settimeout(LIMIT_SECONDS)
    seen: list[object] = []

    def serve() -> None:
        try:
            with server.wrap_socket(right, server_side=True) as tls:
                tls.sendall(b"x")
                seen.extend([tls.getpeercert(binary_form=True), tls.version(), tls.selected_alpn_protocol()])
        except OSError as problem:
            seen.append(problem)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(left, server_hostname="kubernetes.default.svc") as tls:
            tls.recv(1)
    finally:
        left.close()
        thread.join()
    if isinstance(seen[0], OSError):
        raise seen[0]
    return tuple(seen)  # type: ignore[return-value]


def client_context(made: pki.Pki) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=made.ca_certificate_pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def test_server_context_takes_clients_with_and_without_certificate(tmp_path: Path) -> None:
    made = pki.prepare(tmp_path)
    client = client_context(made)
    assert handshake(made.server_context(), client) == (None, "TLSv1.3", "http/1.1")
    client.load_cert_chain(tmp_path / "pki/admin.crt", tmp_path / "pki/admin.key")
    der, _, _ = handshake(made.server_context(), client)
    assert der is not None
    assert x509.load_der_x509_certificate(der) == load(tmp_path / "pki/admin.crt")


def test_client_certificate_of_another_ca_is_rejected(tmp_path: Path) -> None:
    made, other = pki.prepare(tmp_path / "a"), pki.prepare(tmp_path / "b")
    client = client_context(made)
    client.load_cert_chain(tmp_path / "b/pki/admin.crt", tmp_path / "b/pki/admin.key")
    with pytest.raises(OSError):
        handshake(made.server_context(), client)
    assert other.ca_certificate_pem != made.ca_certificate_pem


def test_server_context_requires_tls_1_2(tmp_path: Path) -> None:
    assert pki.prepare(tmp_path).server_context().minimum_version == ssl.TLSVersion.TLSv1_2
