"""Keys of a distribution's config file, as users write them: which are known, and whether their values are valid.

Unknown keys, and keys that only the manager sets, cause a warning: nodes do not get them. Values that no version
accepts, and values that the distribution's contract excludes, are rejected. All checks use the plan's own merge
(`render.arguments`), so that nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remuda.kube.errors import OMITTED, FieldError, invalid
from remuda.providers.controlplane.render.arguments import OURS, absence, coerced
from remuda.providers.shared.distros import ArgumentType, Distro, Version
from remuda.providers.shared.distros.contract import listed, refusals
from remuda.providers.shared.types.configuration import ClusterConfiguration


def complaints(
    config: ClusterConfiguration, distro: Distro | None, path: str, version: Version | None = None
) -> list[FieldError]:
    """Return the errors. `distro`: None if the version does not name one."""
    found = []
    for key, value, at in _given(config, path):
        wanted = _type(distro, key) if distro is not None else None
        _, refusal = coerced(value, wanted or "list")
        if refusal:
            found.append(invalid(at, value, refusal))
    return found + (_refused(config, distro, version, path) if distro is not None and version is not None else [])


def warnings(config: ClusterConfiguration, distro: Distro, path: str, version: Version | None = None) -> list[str]:
    """Return a warning for each config key that nodes do not get."""
    return [
        f"{at}: {why}" for key, value, at in _given(config, path) if (why := _left_out(distro, version, key, value))
    ]


def _refused(config: ClusterConfiguration, distro: Distro, version: Version, path: str) -> list[FieldError]:
    """Return what the program refuses: of the config of all machines, and of each selector's over that."""
    every = _merged({}, config.machine_global_config, distro)
    at = f"{path}.machineGlobalConfig"
    found = dict.fromkeys(refusals(distro.contract, version, every), at)
    for index, entry in enumerate(config.machine_selector_config):
        some = _merged(every, entry.config, distro)
        for refusal in refusals(distro.contract, version, some):
            found.setdefault(refusal, f"{path}.machineSelectorConfig[{index}].config")
    return [invalid(f"{at}.{refusal.key}", OMITTED, refusal.words) for refusal, at in found.items()]


def _merged(before: Mapping[str, Any], config: Mapping[str, Any], distro: Distro) -> dict[str, Any]:
    """Return the values that a plan would have (`render.arguments.wanted`)."""
    values = dict(before)
    for key in sorted(config, key=lambda key: (key.endswith("+"), key)):
        kind = _type(distro, key)
        if kind is not None and _bare(key) not in OURS:
            value, _ = coerced(config[key], kind)
            values[_bare(key)] = [*listed(values.get(_bare(key))), *listed(value)] if key.endswith("+") else value
    return values


def _left_out(distro: Distro, version: Version | None, key: str, value: Any) -> str:
    if not value:
        return ""
    name = _bare(key)
    if name in OURS:
        return f"is not passed to nodes: {OURS[name]}"
    if version is not None and name in distro.server_arguments and name not in distro.arguments(True, version):
        return f"is not passed to nodes: {absence(distro, version, name)}"
    if _type(distro, key) is None:
        return f"{distro.name} has no known key {name}, so it is left out of the config of nodes"
    return ""


def _given(config: ClusterConfiguration, path: str) -> Iterator[tuple[str, Any, str]]:
    for key, value in config.machine_global_config.items():
        yield key, value, f"{path}.machineGlobalConfig.{key}"
    for index, entry in enumerate(config.machine_selector_config):
        for key, value in entry.config.items():
            yield key, value, f"{path}.machineSelectorConfig[{index}].config.{key}"


def _bare(key: str) -> str:
    """Return the key without a trailing +, which appends to the value of other sources."""
    return key.removesuffix("+")


def _type(distro: Distro, key: str) -> ArgumentType | None:
    return distro.server_arguments.get(_bare(key)) or distro.agent_arguments.get(_bare(key))
