"""Options of servers from the configuration file and from environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from remuda.cli import apiserver, manager, server_config, up
from remuda.cli.server_config import DATA_DIR

COMMANDS = {command.name: command for command in (up.command, manager.command, apiserver.command)}


@pytest.fixture(autouse=True)
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_config, "_SYSTEM_FILE", tmp_path / "etc.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "remuda.toml"
    monkeypatch.setenv("REMUDA_CONFIG", str(path))
    return path


def parsed(command: str, *words: str) -> dict[str, Any]:
    """Return the values of all options, without running the command."""
    return COMMANDS[command].make_context(command, list(words)).params


def refused(command: str, *words: str) -> str:
    with pytest.raises(click.ClickException) as error:
        parsed(command, *words)
    return error.value.format_message()


def test_flag_precedes_variable_precedes_file_precedes_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_order: list[Path] = []
    file.write_text("")
    assert_order.append(parsed("up")["data_dir"])
    file.write_text('[up]\ndata-dir = "from-file"\n')
    assert_order.append(parsed("up")["data_dir"])
    monkeypatch.setenv("REMUDA_DATA_DIR", "from-variable")
    assert_order.append(parsed("up")["data_dir"])
    assert_order.append(parsed("up", "--data-dir", "from-flag")["data_dir"])
    assert assert_order == [DATA_DIR, Path("from-file"), Path("from-variable"), Path("from-flag")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_key_and_variable(command: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"listen": "127.0.0.1:7", "health_listen": "127.0.0.1:7", "user_quota": "clusters=3", "log_format": "json"}
    texts |= {"webhook_listen": "[::1]:7", "nodes_listen": ":7", "log_level": "info", "token_auth_file": __file__}
    texts |= {"bootstrap_token_ttl": "90s", "job_timeout": "90s"}
    for option in COMMANDS[command].params:
        if option.name in ("config", "detach", "remove_webhooks"):
            continue
        assert isinstance(option, click.Option)
        name = str(option.name)
        if option.is_flag:
            value, text = str(not option.default).lower(), str(not option.default).lower()
        elif option.multiple:
            value, text = '["a.example", "b.example"]', "a.example b.example"
        elif isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
            value, text = "7", "7"
        else:
            text = texts.get(name, "some-text")
            value = f'"{text}"'
        file.write_text(f"[{command}]\n{name.replace('_', '-')} = {value}\n")
        by_file = parsed(command)[name]
        file.write_text("")
        assert by_file != parsed(command)[name], name
        monkeypatch.setenv(f"REMUDA_{name.upper()}", text)
        assert parsed(command)[name] == by_file
        monkeypatch.delenv(f"REMUDA_{name.upper()}")


def test_file_takes_list_of_controllers_and_table_of_quotas(file: Path) -> None:
    file.write_text('[up]\ncontrollers = ["core", "access"]\nuser-quota = {clusters = 3, tokens = 2}\n[manager]\n')
    found = parsed("up")
    assert found["controllers"] == ("core", "access")
    assert found["user_quota"] == {"clusters": 3, "tokens": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[up]\ndata_dir = 'x'", "unknown key data_dir in [up] of the configuration file {}: did you mean data-dir?"),
        ("[up]\nsaddle = 1", "unknown key saddle in [up] of the configuration file {}: the keys are the options of"),
        ("[up]\ndetach = true", "unknown key detach in [up]"),
        ("[mananger]\n", "unknown name mananger in the configuration file {}: did you mean manager?"),
        ("listen = ':1'", "unknown name listen in the configuration file {}: its tables are [up], [manager]"),
        ("up = 1", "up in the configuration file {} must be a table: [up]"),
        ("[up", "the configuration file {} is not valid TOML"),
        ("[up]\nlisten = 6443", "listen in [up] of the configuration file {} must be a string"),
        ("[up]\nupkeep = 'no'", "upkeep in [up] of the configuration file {} must be true or false"),
        ("[up]\nevent-ttl = '1h'", "event-ttl in [up] of the configuration file {} must be a number"),
        ("[up]\ntls-san = [1]", "tls-san in [up] of the configuration file {} must be a list of strings"),
        (
            "[up]\nlisten = 'x'",
            "'x' is not HOST:PORT, for example 127.0.0.1:6443 or [::1]:6443 (from the configuration",
        ),
    ],
)
def test_invalid_file_is_refused_with_file_and_key(text: str, said: str, file: Path) -> None:
    file.write_text(text)
    assert said.format(file) in refused("up")


def test_missing_named_file_is_refused(tmp_path: Path) -> None:
    said = refused("up", "--config", str(tmp_path / "none.toml"))
    assert said == f"cannot read the configuration file {tmp_path / 'none.toml'}: No such file or directory"


def test_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_LISTEN", "nowhere")
    assert refused("up").endswith("(from $REMUDA_LISTEN)")


def test_default_file_of_user_precedes_that_of_system(tmp_path: Path) -> None:
    (tmp_path / "etc.toml").write_text("[up]\ndata-dir = 'system'\n")
    assert parsed("up")["data_dir"] == server_config.data_dir() == Path("system")
    own = tmp_path / "config" / "remuda" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[up]\ndata-dir = 'own'\n")
    assert parsed("up")["data_dir"] == server_config.data_dir() == Path("own")
