"""Keys of a distribution's config file, as users write them: which are known, and whether their values make sense.

A key nobody knows, or that only the manager sets, is warned of: nodes are not given it. A value that no version could
take is refused. Both are judged as plans are written (`render.arguments`), so that nothing is left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda.kube.errors import FieldError, invalid
from remuda.providers.controlplane.configuration import ClusterConfiguration
from remuda.providers.controlplane.distros import ArgumentType, Distro
from remuda.providers.controlplane.render.arguments import OURS, coerced


def complaints(config: ClusterConfiguration, distro: Distro | None, path: str) -> list[FieldError]:
    """`distro`: None where the version does not say."""
    found = []
    for key, value, at in _given(config, path):
        wanted = _type(distro, key) if distro is not None else None
        _, refusal = coerced(value, wanted or "list")
        if refusal:
            found.append(invalid(at, value, refusal))
    return found


def warnings(config: ClusterConfiguration, distro: Distro, path: str) -> list[str]:
    """Of what nodes are not given."""
    return [f"{at}: {why}" for key, value, at in _given(config, path) if (why := _left_out(distro, key, value))]


def _left_out(distro: Distro, key: str, value: Any) -> str:
    if not value:
        return ""
    name = _bare(key)
    if name in OURS:
        return f"is not given to nodes: {OURS[name]}"
    if _type(distro, key) is None:
        return f"{distro.name} is not known to have a key {name}, so it is left out of the config of its nodes"
    return ""


def _given(config: ClusterConfiguration, path: str) -> Iterator[tuple[str, Any, str]]:
    for key, value in config.machine_global_config.items():
        yield key, value, f"{path}.machineGlobalConfig.{key}"
    for index, entry in enumerate(config.machine_selector_config):
        for key, value in entry.config.items():
            yield key, value, f"{path}.machineSelectorConfig[{index}].config.{key}"


def _bare(key: str) -> str:
    """A + behind a key adds to what stands elsewhere."""
    return key.removesuffix("+")


def _type(distro: Distro, key: str) -> ArgumentType | None:
    return distro.server_arguments.get(_bare(key)) or distro.agent_arguments.get(_bare(key))
