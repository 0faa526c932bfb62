"""config.yaml and the connection info."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from remuda.agent import connection
from remuda.agent.config import Config, ConfigError, load, parse, render
from tests.lab.certificates import Authority
from tests.unit.agent.host import encoded, kubeconfig

UPSTREAM = """workDirectory: /var/lib/rancher/agent/work
localEnabled: false
localPlanDirectory: /var/lib/rancher/agent/plans
interlockDirectory: /var/lib/rancher/agent/interlock
appliedPlanDirectory: /var/lib/rancher/agent/applied
remoteEnabled: true
connectionInfoFile: /var/lib/rancher/agent/rancher2_connection_info.json
preserveWorkDirectory: false
"""


def private(path: Path, content: str, mode: int = 0o600) -> str:
    path.touch()
    path.chmod(mode)
    path.write_text(content)
    return str(path)


def test_upstream_config_file_is_loaded(tmp_path: Path) -> None:
    found = load(private(tmp_path / "config.yaml", UPSTREAM), root="/r", address="127.0.0.9")
    assert found == Config(
        work_directory="/var/lib/rancher/agent/work",
        applied_plan_directory="/var/lib/rancher/agent/applied",
        remote_enabled=True,
        local_plan_directory="/var/lib/rancher/agent/plans",
        connection_info_file="/var/lib/rancher/agent/rancher2_connection_info.json",
        interlock_directory="/var/lib/rancher/agent/interlock",
        journal_file="/var/lib/rancher/agent/journal.json",
        servers_directory="/var/lib/rancher/agent/servers.d",
        root="/r",
        address="127.0.0.9",
    )


def test_rendered_config_round_trips() -> None:
    config = Config(work_directory='/a "b"', local_enabled=True, instruction_timeout_seconds=5, upgrade=False)
    assert parse(render(config)) == config


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("workDirectory: /w\n", "neither remoteEnabled nor localEnabled"),
        ("workDirectory: /w\nremoteEnabled: true\n", "needs connectionInfoFile"),
        ("workDirectory: /w\nlocalEnabled: true\n", "needs localPlanDirectory"),
        ("remoteEnabled: true\nconnectionInfoFile: /c\n", "workDirectory is missing"),
        ("remoteEnabled: yes please\n", "remoteEnabled is not of type bool"),
        ("- a\n", "not a mapping"),
        ("a: &b c\n", "line 1"),
    ],
)
def test_invalid_config_raises_config_error_with_reason(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(private(tmp_path / "config.yaml", content))


def test_config_file_missing_or_with_wrong_mode_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must have mode 0600, not 0644"):
        load(private(tmp_path / "config.yaml", UPSTREAM, 0o644))
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        load(str(tmp_path / "none.yaml"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_config_file_owned_by_another_user_is_rejected(tmp_path: Path) -> None:
    path = private(tmp_path / "config.yaml", UPSTREAM)
    os.chown(path, 12, 34)
    with pytest.raises(ConfigError, match="must belong to user 0, not 12"):
        load(path)


AUTHORITY, OTHER = Authority("first"), Authority("second")


def info(text: str = "", **changes: str) -> bytes:
    text = text or kubeconfig("https://manager:8443/", AUTHORITY.pem, "secret-token")
    return json.dumps({"kubeConfig": text, "namespace": "fleet", "secretName": "plan", **changes}).encode()


def test_connection_info_accepts_yaml_and_json_kubeconfig() -> None:
    import yaml

    found = connection.parse(info())
    assert found == connection.AgentConnection(
        ("https://manager:8443",), AUTHORITY.pem.decode(), "secret-token", "", "fleet", "plan"
    )
    as_json = json.dumps(yaml.safe_load(kubeconfig("https://manager:8443/", AUTHORITY.pem, "secret-token")))
    assert connection.parse(info(as_json)) == found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (info(namespace=""), "has no namespace"),
        (info("{}"), "lacks a context, a cluster or a user"),
        (info("a: *b"), "line 1"),
        (info(kubeconfig("http://manager", AUTHORITY.pem, "t")), "is not https"),
        (info(kubeconfig("https://m", AUTHORITY.pem, "")), "neither a token nor a client certificate"),
        (
            info(kubeconfig("https://m\n    insecure-skip-tls-verify: true", AUTHORITY.pem, "t")),
            "disables TLS verification",
        ),
    ],
)
def test_incomplete_or_insecure_connection_info_is_rejected(content: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        connection.parse(content)
    assert "secret-token" not in str(caught.value)


def test_valid_servers_and_cas_from_servers_directory_are_added(tmp_path: Path) -> None:
    more = {"server": "https://new:443/", "certificate-authority-data": encoded(OTHER.pem)}
    private(tmp_path / "a.json", json.dumps(more))
    private(tmp_path / "b.json", json.dumps({"server": "http://unsafe"}))
    private(tmp_path / "c.json", json.dumps({"certificate-authority-data": encoded(b"junk")}))
    private(tmp_path / "d.json", json.dumps({"server": "https://foreign"}), 0o666)
    found = connection.with_more(connection.parse(info()), str(tmp_path))
    assert found.servers == ("https://manager:8443", "https://new:443")
    assert found.ca_pem == AUTHORITY.pem.decode() + "\n" + OTHER.pem.decode()
    assert connection.with_more(connection.parse(info()), str(tmp_path / "none")) == connection.parse(info())


@pytest.mark.parametrize("answer", [b"[" * 100_000, b'{"kubeConfig":' * 100_000])
def test_deeply_nested_connection_info_is_refused(answer: bytes) -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        connection.parse(answer)


@pytest.mark.parametrize(("path", "why"), [("/nonexistent/ca.pem", "/nonexistent/ca.pem: No such file"), (1, "lacks")])
def test_unreadable_certificate_authority_is_rejected(path: object, why: str) -> None:
    """A number would be a descriptor of the agent itself."""
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "https://a", "certificate-authority": path}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
    }
    info = {"kubeConfig": json.dumps(config), "namespace": "a", "secretName": "b"}
    with pytest.raises(ConfigError, match=why):
        connection.parse(json.dumps(info).encode())
