"""Flags, environment and config files: what counts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.lab.nano import arguments, facts
from remuda.lab.nano.configuration import Configuration, FatalError, Role, read
from remuda.lab.nano.host import NanoHost
from remuda.providers.shared.distros.k3s import NANO


def configured(
    tmp_path: Path,
    role: Role = "server",
    flags: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    **files: str,
) -> Configuration:
    folder = tmp_path / "etc/rancher/nano"
    (folder / "config.yaml.d").mkdir(parents=True)
    for name, content in files.items():
        path = folder / "config.yaml" if name == "main" else folder / "config.yaml.d" / f"{name.lstrip('_')}.yaml"
        path.write_text(content)
    return read(role, flags, NanoHost(str(tmp_path)), environment or {})


def test_later_config_files_override_and_plus_keys_append(tmp_path: Path) -> None:
    found = configured(
        tmp_path,
        main="token: first\nnode-label: [a=1]\ntls-san: one\n",
        _50=json.dumps({"token": "second", "node-label+": ["b=2"], "tls-san": ["two"]}),
        _60="node-label+: c=3\ndebug: true\nhttps-listen-port: 7443\n",
    )
    assert found.text("token") == "second"
    assert found.items("node-label") == ("a=1", "b=2", "c=3")
    assert found.items("tls-san") == ("two",)
    assert found.flag("debug")
    assert found.text("https-listen-port") == "7443"


def test_flags_override_config_files_which_override_environment(tmp_path: Path) -> None:
    found = configured(
        tmp_path,
        flags=("--node-name=flag", "--node-label", "b=2", "--cluster-init"),
        environment={"NANO_TOKEN": "environment", "NANO_NODE_NAME": "environment", "NANO_URL": "https://x"},
        main="node-name: file\nnode-label: [a=1]\ntoken: file\n",
    )
    assert found.text("node-name") == "flag"
    assert found.text("token") == "file"
    assert found.text("server") == "https://x"
    assert found.items("node-label") == ("a=1", "b=2")
    assert found.flag("cluster-init")


def test_server_skips_unknown_config_key_and_agent_rejects_unknown_key(tmp_path: Path) -> None:
    found = configured(tmp_path, main="token: x\nno-such: 1\n")
    assert found.warnings == ["Unknown flag --no-such found in the config file, skipping"]
    with pytest.raises(FatalError, match="not defined: -tls-san"):
        configured(tmp_path / "agent", "agent", main="token: x\ntls-san: [y]\n")


@pytest.mark.parametrize("flags", [("--no-such", "x"), ("server",), ("--token",)])
def test_invalid_flags_are_rejected(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with pytest.raises(FatalError):
        configured(tmp_path, flags=flags)


@pytest.mark.parametrize("content", ["a: [", "- a\n", "just text"])
def test_config_file_that_is_not_a_map_is_rejected_without_showing_content(tmp_path: Path, content: str) -> None:
    with pytest.raises(FatalError) as refused:
        configured(tmp_path, main=content + "\n")
    assert content not in str(refused.value)


def test_last_component_argument_takes_precedence() -> None:
    found = Configuration(role="server", values={"kubelet-arg": ("a=b", "provider-id=x://1", "--provider-id=x://2=3")})
    assert found.argument("kubelet-arg", "provider-id") == "x://2=3"
    assert found.argument("kubelet-arg", "none", "default") == "default"


def test_all_planned_config_keys_are_known_to_their_role() -> None:
    for planned, known in ((NANO.server_arguments, arguments.SERVER), (NANO.agent_arguments, arguments.AGENT)):
        kinds = {key: "string" if kind == "number" else kind for key, kind in planned.items()}
        assert {key: known.get(key) for key in kinds} == kinds


def test_taints_are_parsed_and_invalid_taints_rejected() -> None:
    assert facts.taint("a=b:NoSchedule") == {"key": "a", "value": "b", "effect": "NoSchedule"}
    assert facts.taint("x.io/a:NoExecute") == {"key": "x.io/a", "effect": "NoExecute"}
    for bad in ("a", "a=b", "a=b:Sometimes"):
        with pytest.raises(FatalError, match="key=value:effect"):
            facts.taint(bad)


def test_host_root_is_prepended_to_paths_once() -> None:
    host = NanoHost("/hosts/one", "127.5.0.1")
    assert str(host.path("/var/lib")) == "/hosts/one/var/lib"
    assert str(host.path("/hosts/one/var/lib")) == "/hosts/one/var/lib"
    assert str(NanoHost().path("/var/lib")) == "/var/lib"
    assert (host.loopback, host.everywhere, host.own_address()) == ("127.5.0.1",) * 3
    assert (NanoHost().loopback, NanoHost().everywhere) == ("127.0.0.1", "0.0.0.0")
