"""What `remuda token`, `user`, `grant` and `get kubeconfig` say before they speak to anybody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from remuda.cli import credentials
from remuda.cli.connection import chosen_kubeconfig
from remuda.cli.grant import name_of
from remuda.cli.main import main
from remuda.kube import clock, kubeconfig


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(words))
    return result.exit_code, result.output


@pytest.mark.parametrize("command", ["user", "token", "grant", "get"])
def test_help_lists_access_command(command: str) -> None:
    code, text = run("--help")
    assert code == 0
    assert f"  {command} " in text
    assert run(command, "--help")[0] == 0


@pytest.mark.parametrize(
    ("ttl", "words"),
    [("soon", "is not a duration"), ("-1h", "must be more than zero"), ("0", "must be more than zero")],
)
def test_invalid_token_ttl_is_rejected(ttl: str, words: str) -> None:
    code, text = run("token", "create", "--user", "u", "--ttl", ttl)
    assert code == 2
    assert words in text


@pytest.mark.parametrize("text", ["clusters", "clusters=many", "clusters=-1", "horses=3", "clusters=3;machines=1"])
@pytest.mark.parametrize("words", [("user", "create", "alice", "--quota"), ("up", "--user-quota")])
def test_unparsable_quota_is_rejected(words: tuple[str, ...], text: str) -> None:
    code, said = run(*words, text)
    assert code == 2
    assert f"{text!r} is not one of clusters=N, machines=N, tokens=N" in said


def test_cluster_token_rejects_kubeconfig_output() -> None:
    code, said = run("token", "create", "--user", "u", "--cluster", "prairie", "-o", "kubeconfig")
    assert code == 2
    assert "use remuda get kubeconfig" in said


def test_grant_without_role_is_rejected() -> None:
    code, text = run("grant", "alice", "prairie")
    assert code == 2
    assert "cluster-owner" in text


def test_grant_names_are_deterministic_and_unique() -> None:
    names = {name_of(user, role, group) for user in "ab" for role in "cd" for group in (False, True)}
    assert len(names) == 8
    assert name_of("a", "c", False) in names


def test_chosen_kubeconfig_is_absolute_path_with_context_and_rejects_multiple(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "k"
    kubeconfig.write(path, kubeconfig.build("https://ranch.example", name="ranch"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "k")
    assert chosen_kubeconfig(None) == (path, "ranch")
    monkeypatch.setenv("KUBECONFIG", f"k:{path}")
    with pytest.raises(Exception, match="several files"):
        chosen_kubeconfig(None)


def test_cached_token_is_reused_until_near_expiry_or_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    now = 1000.0

    def make(kubeconfig: Path | None, context: str, user: str, cluster: str, ttl: float) -> credentials._CachedToken:
        made.append(now)
        return credentials._CachedToken(f"t:{len(made)}", now + ttl, now + ttl * 0.9)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(credentials, "_create", make)
    monkeypatch.setattr(credentials, "_exists", lambda kubeconfig, context, user, kept: kept.token != "t:2")
    clock.use(lambda: now)
    try:
        for at, token in ((1000.0, "t:1"), (1000.0 + 3200, "t:1"), (1000.0 + 3300, "t:2"), (1000.0 + 3400, "t:3")):
            now = at
            monkeypatch.delenv("REMUDA_CREDENTIAL", raising=False)
            said = json.loads(credentials.credential(None, "", "u", "c", 3600.0))
            assert said["kind"] == "ExecCredential"
            assert said["status"]["token"] == token
    finally:
        clock.use(None)
        monkeypatch.delenv("REMUDA_CREDENTIAL", raising=False)
    (kept,) = (tmp_path / "remuda" / "credentials").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_token_credential_rejects_recursive_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_CREDENTIAL", "1")
    code, text = run("token", "credential", "--cluster", "c")
    assert code == 1
    assert "refers to itself" in text


def test_token_credential_returns_client_certificate_of_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMUDA_CREDENTIAL", raising=False)
    path = tmp_path / "k"
    kubeconfig.write(
        path, kubeconfig.build("https://ranch.example", client_certificate_pem=b"the one", client_key_pem=b"its key")
    )
    words = ("token", "credential", "--certificate", "--cluster", "c", "--kubeconfig", str(path))
    code, text = run(*words)
    assert code == 0, text
    assert json.loads(text)["status"] == {"clientCertificateData": "the one", "clientKeyData": "its key"}
    monkeypatch.delenv("REMUDA_CREDENTIAL", raising=False)
    kubeconfig.write(path, kubeconfig.build("https://ranch.example", token="t"))
    code, text = run(*words)
    monkeypatch.delenv("REMUDA_CREDENTIAL", raising=False)
    assert code == 1
    assert "no client certificate and key in" in text
