"""Options of servers from a configuration file and from environment variables.

Every option of `remuda up`, `remuda manager` and `remuda apiserver` has a variable (`--data-dir`: REMUDA_DATA_DIR) and
a key in the command's table of a TOML file. The command line comes first, then the variable, the file, the default.
click implements the order; this module reads the file and checks it: an unknown key is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from remuda.app import DATA_DIR
from remuda.cli.options import HELP

PREFIX = "REMUDA"
FILE_VARIABLE = f"{PREFIX}_CONFIG"
DATA_DIR_VARIABLE = f"{PREFIX}_DATA_DIR"
TABLES = ("up", "manager", "apiserver")
_SYSTEM_FILE = Path("/etc/remuda/config.toml")
_ACTIONS = ("help", "config", "detach", "remove_webhooks")  # options that are no settings


class ServerCommand(click.Command):
    """Command of a server: its options also come from REMUDA_* variables and from a configuration file."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        attributes["context_settings"] = {
            **HELP,
            "auto_envvar_prefix": PREFIX,
            **attributes.get("context_settings", {}),
        }
        super().__init__(*args, **attributes)
        self.params.insert(0, _config_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            raise _with_source(error, ctx) from None


def _config_option() -> click.Option:
    return click.Option(
        ["--config"],
        type=click.Path(dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_read_defaults,
        help=f"TOML file with options. Default: ${FILE_VARIABLE}, ~/.config/remuda/config.toml, {_SYSTEM_FILE}.",
    )


def _read_defaults(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    path = value or default_file()
    if path is None:
        return
    ctx.meta[FILE_VARIABLE] = path
    ctx.default_map = defaults(ctx.command, read(path), path)


def default_file() -> Path | None:
    """Return the first default file that exists."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    return next((path for path in (home / "remuda" / "config.toml", _SYSTEM_FILE) if path.is_file()), None)


def read(path: Path) -> dict[str, Any]:
    """Return the tables of a configuration file. Raises ClickException."""
    import tomllib

    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise click.ClickException(f"cannot read the configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the configuration file {path} is not valid TOML: {error}") from None
    for name, value in found.items():
        if name not in TABLES:
            advice = _near(name, TABLES) or f"its tables are {', '.join(f'[{one}]' for one in TABLES)}"
            raise click.ClickException(f"unknown name {name} in the configuration file {path}: {advice}")
        if not isinstance(value, dict):
            raise click.ClickException(f"{name} in the configuration file {path} must be a table: [{name}]")
    return found


def defaults(command: click.Command, tables: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of a command by parameter, from the tables of a file. Raises ClickException."""
    known = {_key(option): option for option in command.params if _is_setting(option)}
    found: dict[str, Any] = {}
    for key, value in dict(tables.get(command.name or "", {})).items():
        option = known.get(key)
        place = f"[{command.name}] of the configuration file {path}"
        if option is None:
            advice = _near(key, known) or f"the keys are the options of `remuda {command.name} --help` without --"
            raise click.ClickException(f"unknown key {key} in {place}: {advice}")
        try:
            found[str(option.name)] = _value(option, value)
        except ValueError as error:
            raise click.ClickException(f"{key} in {place} must be {error}") from None
    return found


def data_dir() -> Path:
    """Return the data directory of a `remuda up` that was given none on its command line."""
    if named := os.environ.get(DATA_DIR_VARIABLE):
        return Path(named)
    path = Path(os.environ[FILE_VARIABLE]) if os.environ.get(FILE_VARIABLE) else default_file()
    if path is None or not os.access(path, os.R_OK):  # a client may lack the right to read the server's file
        return DATA_DIR
    named = read(path).get("up", {}).get("data-dir")
    return Path(named) if isinstance(named, str) else DATA_DIR


def data_dir_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return `--data-dir` for commands that use the data directory of a server."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        callback=lambda _, __, value: value or data_dir(),
        help=f"{help} Default: that of `remuda up`: ${DATA_DIR_VARIABLE}, its configuration file, {DATA_DIR}.",
    )


def _is_setting(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and option.name not in _ACTIONS


def _key(option: click.Parameter) -> str:
    return max(option.opts, key=len).lstrip("-")


def _value(option: click.Parameter, value: Any) -> Any:
    """Return a value of a TOML file as click reads it. Raises ValueError with the expected type."""
    assert isinstance(option, click.Option)
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    if option.multiple:
        if isinstance(value, str) or texts:
            return [value] if isinstance(value, str) else value
        raise ValueError("a list of strings")
    if option.is_flag:
        if isinstance(value, bool):
            return value
        raise ValueError("true or false")
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        raise ValueError("a number")
    if option.name == "controllers" and texts:
        return ",".join(value)
    if option.name == "user_quota" and isinstance(value, dict):
        return ",".join(f"{name}={amount}" for name, amount in value.items())
    if isinstance(value, str):
        return value
    raise ValueError("a string")


def _near(name: str, known: Any) -> str:
    close = get_close_matches(name.replace("_", "-"), list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def _with_source(error: click.BadParameter, ctx: click.Context) -> click.BadParameter:
    """Add where an invalid value comes from, if it is not the command line."""
    name = error.param.name if error.param is not None else None
    source = ctx.get_parameter_source(name) if name else None
    if name and source == ParameterSource.ENVIRONMENT:
        origin = f"${PREFIX}_{name.upper()}"
    elif name and source == ParameterSource.DEFAULT_MAP:
        origin = f"the configuration file {ctx.meta.get(FILE_VARIABLE)}"
    else:
        return error
    return click.BadParameter(f"{error.message} (from {origin})", ctx, error.param, error.param_hint)
