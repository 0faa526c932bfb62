"""Who we are: fixed, from files that change, from programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.kube.http.identity import ClientIdentity, identity_source, impersonation_headers
from remuda.kube.kubeconfig import ClientConfig, ExecPlugin, Impersonation, KubeconfigError


def replace(path: Path, text: str, age: int = 0) -> None:
    """As a kubelet does it: another file in its place, with a time of its own."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.utime(new, (1_000_000 - age, 1_000_000 - age))
    new.replace(path)


async def test_fixed_credentials_yield_a_constant_identity() -> None:
    access = ClientConfig(server="https://c", token="t", ca=b"CA", client_certificate=b"C", client_key=b"K")
    source = identity_source(access)
    found = await source.current()
    assert found == ClientIdentity("Bearer t", b"C", b"K", b"CA")
    assert not source.refused(found)
    assert (await identity_source(ClientConfig(server="https://c")).current()) == ClientIdentity()


async def test_password_yields_basic_authorization() -> None:
    found = await identity_source(ClientConfig(server="https://c", username="jane", password="ü:")).current()
    assert found.authorization == "Basic amFuZTrDvDo="


async def test_token_file_is_reread_when_changed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    replace(path, "one\n")
    source = identity_source(ClientConfig(server="https://c", token="never", token_file=path))
    first = await source.current()
    assert first.authorization == "Bearer one"
    assert not source.refused(first)
    replace(path, "two\n")
    assert source.refused(first)
    assert (await source.current()).authorization == "Bearer two"


async def test_last_token_is_kept_while_token_file_is_missing_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "token"
    replace(path, "one")
    source = identity_source(ClientConfig(server="https://c", token_file=path))
    await source.current()
    path.unlink()
    assert (await source.current()).authorization == "Bearer one"
    replace(path, "", age=5)
    assert (await source.current()).authorization == "Bearer one"


async def test_missing_ca_file_raises_kubeconfig_error(tmp_path: Path) -> None:
    source = identity_source(ClientConfig(server="https://c", ca=tmp_path / "ca.crt"))
    with pytest.raises(KubeconfigError, match=r"cannot read .*ca\.crt"):
        await source.current()


async def test_exec_plugin_token_is_combined_with_configured_certificates(tmp_path: Path) -> None:
    printed = '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'
    plugin = ExecPlugin(api_version="client.authentication.k8s.io/v1", command="echo", args=(printed,))
    source = identity_source(
        ClientConfig(server="https://c", ca=b"CA", client_certificate=b"C", client_key=b"K", exec=plugin)
    )
    found = await source.current()
    assert found == ClientIdentity("Bearer t", b"C", b"K", b"CA")


def test_impersonation_headers_are_encoded() -> None:
    wanted = Impersonation(user="jane", uid="7", groups=("a", "b"), extra={"Scopes/x": ("1", "2")})
    assert impersonation_headers(wanted) == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-Scopes%2Fx", "1"),
        ("Impersonate-Extra-Scopes%2Fx", "2"),
    ]
    assert impersonation_headers(Impersonation()) == []
