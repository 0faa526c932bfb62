"""The agent's config.yaml, with upstream's keys, and the checks before it is trusted.

It names files with instructions, so it is accepted only if nobody but the agent's own user can write it: mode 0600, and
owned by that user.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from remuda.agent import layout, yaml_subset


class ConfigError(ValueError):
    """Configuration that prevents the start; the text says what to change."""


class Config(NamedTuple):
    work_directory: str = ""
    preserve_work_directory: bool = False
    applied_plan_directory: str = ""
    local_enabled: bool = False
    remote_enabled: bool = False
    local_plan_directory: str = ""
    connection_info_file: str = ""
    images_directory: str = f"{layout.VAR}/images"
    agent_registries_file: str = f"{layout.DIRECTORY}/registries.yaml"
    image_credential_provider_config: str = "/var/lib/rancher/credentialprovider/config.yaml"
    image_credential_provider_bin_directory: str = "/var/lib/rancher/credentialprovider/bin"
    interlock_directory: str = ""
    # Our own settings, which other agents ignore.
    journal_file: str = ""  # default: beside the connection info
    servers_directory: str = ""  # default: servers.d beside the connection info
    instruction_timeout_seconds: int = 0  # 0: no limit
    supersede: bool = False  # a newer plan ends the running one instead of waiting for it
    upgrade: bool = True  # the agent replaces itself by the one that its manager serves
    # Not in the file: from the command line.
    root: str = ""  # root of the host's file system, if not /
    address: str = ""  # the host's own address, which replaces loopback in probes


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_KEYS = {camel(name): name for name in Config._fields if name not in ("root", "address")}


def load(path: str, *, root: str = "", address: str = "") -> Config:
    config = parse(read_private(path).decode("utf-8", "replace"))._replace(root=root, address=address)
    if not (config.local_enabled or config.remote_enabled):
        raise ConfigError(f"{path}: neither remoteEnabled nor localEnabled is true, so there is nothing to follow")
    if config.remote_enabled and not config.connection_info_file:
        raise ConfigError(f"{path}: remoteEnabled needs connectionInfoFile")
    if config.local_enabled and not config.local_plan_directory:
        raise ConfigError(f"{path}: localEnabled needs localPlanDirectory")
    if not config.work_directory:
        raise ConfigError(f"{path}: workDirectory is missing")
    beside = os.path.dirname(config.connection_info_file) or config.work_directory
    return config._replace(
        journal_file=config.journal_file or os.path.join(beside, "journal.json"),
        servers_directory=config.servers_directory or os.path.join(beside, "servers.d"),
    )


def parse(content: str) -> Config:
    try:
        found = yaml_subset.load(content) or {}
    except yaml_subset.YamlError as error:
        raise ConfigError(f"config.yaml: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("config.yaml is not a mapping")
    values = {}
    for key, name in _KEYS.items():
        value = found.get(key)
        if value is None:
            continue
        wanted = type(Config._field_defaults[name])
        # Not isinstance: bool is a subclass of int, so `true` would pass for a number.
        if type(value) is not wanted:
            raise ConfigError(f"config.yaml: {key} is not of type {wanted.__name__}")
        values[name] = value
    return Config(**values)


def render(config: Config) -> str:
    """Render the settings that differ from their defaults; the values are JSON strings, which are YAML too."""
    import json

    lines = []
    for key, name in _KEYS.items():
        value = getattr(config, name)
        if value != Config._field_defaults[name]:
            lines.append(f"{key}: {json.dumps(value)}\n")
    return "".join(lines)


def read_private(path: str) -> bytes:
    """Return the content of a file that only our own user can write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        # Check the open file and not its path, which could be replaced between the check and the read.
        found = os.fstat(descriptor)
        if stat.S_IMODE(found.st_mode) != 0o600:
            raise ConfigError(f"{path} must have mode 0600, not {stat.S_IMODE(found.st_mode):04o}; run chmod 0600")
        if found.st_uid != os.geteuid():
            raise ConfigError(f"{path} must belong to user {os.geteuid()}, not {found.st_uid}")
        return file.read()
