"""The kubeconfig others log in with."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from remuda.kube import kubeconfig


def test_built_kubeconfig_contains_client_certificate() -> None:
    config = kubeconfig.build(
        "https://127.0.0.1:6443", ca_pem=b"CA", client_certificate_pem=b"CERT", client_key_pem=b"KEY", namespace="a"
    )
    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": base64.b64encode(b"CA").decode(),
    }
    assert config["users"][0]["user"] == {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"}
    assert config["contexts"][0]["context"] == {"cluster": "remuda", "user": "admin", "namespace": "a"}
    assert config["current-context"] == config["contexts"][0]["name"]


def test_built_kubeconfig_contains_token() -> None:
    assert kubeconfig.build("https://x", token="t")["users"][0]["user"] == {"token": "t"}


def test_kubeconfig_file_is_written_with_private_mode(tmp_path: Path) -> None:
    path = tmp_path / "admin.kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    config = kubeconfig.build("https://x", token="t")
    kubeconfig.write(path, config)
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text()) == config
    assert list(tmp_path.iterdir()) == [path]


def test_failed_kubeconfig_write_keeps_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "admin.kubeconfig"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        kubeconfig.write(path, kubeconfig.build("https://x"))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
