"""Tokens and certificates without a server."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from remuda.kube import certificates
from remuda.lab.nano import authorities, passwords, serving_certificates, tokens
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.layout import NanoLayout
from remuda.lab.nano.program import main
from remuda.lab.nano.tokens import BadToken

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def made_layout(tmp_path: Path) -> NanoLayout:
    layout = NanoLayout(tmp_path / "data")
    layout.make(server=True)
    return layout


def test_token_parser_accepts_all_forms_and_rejects_invalid_tokens() -> None:
    whole = tokens.parse(f"K10{'a' * 64}::server:pass:word\n")
    assert (whole.user, whole.password, whole.ca_hash) == ("server", "pass:word", "a" * 64)
    assert tokens.parse("just-a-password").user == ""
    assert tokens.parse("abcdef.0123456789abcdef").is_bootstrap
    assert tokens.parse(f"K10{'a' * 64}::abcdef.0123456789abcdef").is_bootstrap
    assert "word" not in repr(whole)
    for bad in ("", "  ", "K10short::server:x", f"K10{'A' * 64}::server:x"):
        with pytest.raises(BadToken):
            tokens.parse(bad)


def test_ca_hash_covers_pem_of_single_ca_or_root_of_chain() -> None:
    root_key, between_key = certificates.new_key(), certificates.new_key()
    root = certificates.make_ca(root_key, "root", 10, NOW)
    pem = certificates.certificate_pem(root)
    assert tokens.ca_hash(pem) == hashlib.sha256(pem).hexdigest()
    between = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "between")]))
        .issuer_name(root.subject)
        .public_key(between_key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(days=1))
        .sign(root_key, root.signature_hash_algorithm)
    )
    chain = certificates.certificate_pem(between) + pem
    assert tokens.ca_hash(chain) == hashlib.sha256(root.public_bytes(serialization.Encoding.DER)).hexdigest()


def test_node_passwords_match_only_themselves() -> None:
    stored = passwords.hashed("right")
    assert passwords.matches("right", stored)
    assert not passwords.matches("wrong", stored)
    assert not passwords.matches("right", "nonsense")
    assert "right" not in stored


def test_serving_certificates_are_reissued_for_new_names_or_near_expiry(tmp_path: Path) -> None:
    layout = made_layout(tmp_path)
    found = authorities.prepare(layout)
    now = datetime.datetime.now(datetime.UTC)
    every = serving_certificates.of_server(layout, found, ["one"])
    assert len(serving_certificates.ensure(every, now)) == len(every)
    assert serving_certificates.ensure(every, now) == []
    assert authorities.shared(layout) == authorities.shared(layout)
    renamed = serving_certificates.ensure(serving_certificates.of_server(layout, found, ["one", "two"]), now)
    assert {path.name for path in renamed} == {
        "serving-kube-apiserver.crt",
        "server-client.crt",
        "peer-server-client.crt",
    }
    later = now + datetime.timedelta(days=365 - 119)
    assert len(
        serving_certificates.ensure(serving_certificates.of_server(layout, found, ["one", "two"]), later)
    ) == len(every)


def test_rsa_ca_signs_serving_certificates(tmp_path: Path) -> None:
    layout = made_layout(tmp_path)
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mine")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=900))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = builder.sign(key, certificates.make_ca(certificates.new_key(), "x", 1, now).signature_hash_algorithm)
    (layout.tls / "server-ca.crt").write_bytes(certificates.certificate_pem(made))
    (layout.tls / "server-ca.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    found = authorities.prepare(layout)
    serving_certificates.ensure(serving_certificates.of_server(layout, found, ["one"]), now)
    leaf = x509.load_pem_x509_certificate((layout.tls / "serving-kube-apiserver.crt").read_bytes())
    assert certificates.is_issued_by(leaf, made)


def test_mismatched_or_missing_ca_key_is_fatal(tmp_path: Path) -> None:
    layout = made_layout(tmp_path)
    authorities.prepare(layout)
    other = made_layout(tmp_path / "other")
    authorities.prepare(other)
    with pytest.raises(FatalError, match="is not what the cluster has"):
        authorities.accept(layout, authorities.shared(other))
    (layout.tls / "client-ca.key").write_bytes((other.tls / "client-ca.key").read_bytes())
    with pytest.raises(FatalError, match="does not belong to"):
        authorities.prepare(layout)
    (layout.tls / "client-ca.key").unlink()
    with pytest.raises(FatalError, match="is missing"):
        authorities.prepare(layout)


def test_nano_version_help_token_scripts_and_certificate_commands_succeed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOST_ROOT", str(tmp_path))
    monkeypatch.setenv("NANO_VERSION", "v1.2.3+nano4")
    assert main(["--version"]) == 0
    assert main(["--help"]) == 0
    assert main(["token", "generate"]) == 0
    told = capsys.readouterr().out
    assert "nano version v1.2.3+nano4" in told
    assert "runs no Pods" in told
    assert tokens.parse(told.splitlines()[-1]).is_bootstrap
    assert main(["scripts", str(tmp_path / "bin")]) == 0
    assert {path.name for path in (tmp_path / "bin").iterdir()} == {
        "nano-killall.sh",
        "nano-uninstall.sh",
        "nano-agent-uninstall.sh",
    }
    layout = NanoLayout(tmp_path / "var/lib/rancher/nano")
    layout.make(server=True)
    found = authorities.prepare(layout)
    serving_certificates.ensure(
        serving_certificates.of_server(layout, found, ["one"]), datetime.datetime.now(datetime.UTC)
    )
    assert main(["certificate", "check"]) == 0
    assert "OK" in capsys.readouterr().out
    assert main(["certificate", "rotate"]) == 0
    left = {path.name for path in layout.tls.rglob("*.crt")}
    assert left == {"server-ca.crt", "client-ca.crt", "request-header-ca.crt", "peer-ca.crt"}
    assert authorities.shared_names()
    assert main(["no-such-command"]) == 1
