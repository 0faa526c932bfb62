"""Merge of flags, environment and config files into one configuration, by K3s' rules.

The environment has the lowest precedence, then config.yaml, then config.yaml.d/*.yaml in the order of their names, then
flags. A later file replaces a key; `key+` appends to it. Flags append to lists and replace everything else. A server
warns about unknown keys and continues; an agent refuses them. Settings that prevent a start of RKE2 are refused with
RKE2's messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from remuda.lab import LabError
from remuda.lab.nano import arguments
from remuda.lab.nano.arguments import ArgumentType
from remuda.lab.nano.flavour import NANO, Flavour
from remuda.lab.nano.host import NanoHost

Role = Literal["server", "agent"]


class FatalError(LabError):
    """Error that ends the program; the message gives the reason."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    flavour: Flavour = NANO
    values: Mapping[str, Sequence[str]] = {}
    warnings: Sequence[str] = ()

    @property
    def data_dir(self) -> str:
        return self.text("data-dir") or self.flavour.data_dir

    def text(self, key: str, default: str = "") -> str:
        values = self.values.get(key)
        return values[-1] if values else default

    def flag(self, key: str) -> bool:
        return self.text(key).lower() in ("true", "1", "t")

    def items(self, key: str) -> Sequence[str]:
        return self.values.get(key, ())

    def split(self, key: str) -> list[str]:
        """Split a list that may also be written with commas: addresses."""
        return [part.strip() for value in self.items(key) for part in value.split(",") if part.strip()]

    def argument(self, key: str, name: str, default: str = "") -> str:
        """Return one of a component's own flags: `provider-id` of `kubelet-arg`."""
        found = default
        for item in self.items(key):
            flag, _, value = item.lstrip("-").partition("=")
            if flag == name:
                found = value
        return found

    def __repr__(self) -> str:
        return f"<Configuration of a {self.role}>"


def read(
    role: Role, flags: Sequence[str], host: NanoHost, environment: Mapping[str, str], flavour: Flavour = NANO
) -> Configuration:
    """Read the configuration. Raise FatalError."""
    table = flavour.server_arguments if role == "server" else flavour.agent_arguments
    from_environment = {
        key: (value,)
        for name, key in arguments.ENVIRONMENT.items()
        if (value := environment.get(flavour.variable(name))) and key in table
    }
    given = parse_flags(flags, table)
    main = (given.get("config") or from_environment.get("config") or (flavour.config_file,))[-1]
    from_files: dict[str, Sequence[str]] = {}
    for path in _files(host.path(main)):
        from_files = merge(from_files, _load(path))
    known, warnings = _known(role, from_files, table)
    values = {**from_environment, **known}
    for key, more in given.items():
        values[key] = (*values.get(key, ()), *more) if table[key] == "list" else more
    return Configuration(role=role, flavour=flavour, values=values, warnings=warnings)


def merge(before: Mapping[str, Sequence[str]], document: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Merge one more configuration file into the values of the files before it. A key that ends in `+` appends."""
    merged = dict(before)
    for key, value in document.items():
        name, values = str(key), _as_texts(value)
        if name.endswith("+"):
            name = name[:-1]
            values = (*merged.get(name, ()), *values)
        merged[name] = values
    return merged


def parse_flags(flags: Sequence[str], table: Mapping[str, ArgumentType]) -> dict[str, tuple[str, ...]]:
    """Parse `--key value`, `--key=value`, and `--key` alone for booleans. Raise FatalError."""
    found: dict[str, tuple[str, ...]] = {}
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        name, has_value, value = flag.lstrip("-").partition("=")
        kind = table.get(name)
        if not flag.startswith("-") or kind is None:
            raise FatalError(f"flag provided but not defined: {flag.partition('=')[0]}")
        if not has_value:
            if kind == "boolean":
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise FatalError(f"flag needs an argument: --{name}")
        found[name] = (*found.get(name, ()), value)
    return found


def _known(
    role: Role, values: Mapping[str, Sequence[str]], table: Mapping[str, ArgumentType]
) -> tuple[dict[str, Sequence[str]], list[str]]:
    unknown = sorted(key for key in values if key not in table)
    if unknown and role == "agent":
        raise FatalError(f"flag provided but not defined: -{unknown[0]} (in the config file of an agent)")
    warnings = [f"Unknown flag --{key} found in the config file, skipping" for key in unknown]
    return {key: value for key, value in values.items() if key in table}, warnings


def _files(main: Path) -> Iterable[Path]:
    if main.is_file():
        yield main
    folder = main.with_name(main.name + ".d")
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())


def _load(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        # Without the parser's excerpt, because the file contains tokens.
        where = getattr(error, "problem_mark", None)
        raise FatalError(f"{path} cannot be read as YAML{f', line {where.line + 1}' if where else ''}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise FatalError(f"{path} is not a YAML mapping")
    return document


def _as_texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(text for item in value for text in _as_texts(item))
    if value is None:
        return ()
    return ("true" if value is True else "false" if value is False else str(value),)


def check_cloud_settings(configuration: Configuration) -> None:
    """Refuse cloud settings that contradict each other. Raise FatalError."""
    if not configuration.flavour.excludes_cloud_addresses:
        return
    provider = configuration.text("cloud-provider-name")
    settings = configuration.text("cloud-provider-config")
    if (provider or settings) and configuration.split("node-external-ip"):
        raise FatalError("can't set node-external-ip while using cloud provider")
    if settings and not provider:
        raise FatalError("--cloud-provider-config requires --cloud-provider-name")
