"""Keys of a distribution's config file, as users write them: which are known, and whether their values make sense.

A key nobody knows is warned of: a newer version of the distribution may know it, but a node of ours is not given it. A
value that no version could take is refused: a map, a list where there is one value, a word where there is a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remuda.kube.errors import FieldError, invalid
from remuda.providers.controlplane.configuration import ClusterConfiguration
from remuda.providers.controlplane.distros import ArgumentType, Distro

_BOOLEANS = frozenset(("true", "false", "1", "0", "t", "f"))
_WANTED: Mapping[ArgumentType, str] = {
    "boolean": "true or false",
    "number": "a number",
    "string": "one value",
    "list": "a list of values",
}


def complaints(config: ClusterConfiguration, distro: Distro | None, path: str) -> list[FieldError]:
    """`distro`: None where the version does not say."""
    found = []
    for key, value, at in _given(config, path):
        wanted = _type(distro, key) if distro is not None else None
        if value is not None and not _fits(value, wanted):
            of = f" of {distro.name}" if distro is not None and wanted is not None else ""
            found.append(invalid(at, value, f"must be {_WANTED[wanted or 'list']}: that is what {key}{of} takes"))
    return found


def warnings(config: ClusterConfiguration, distro: Distro, path: str) -> list[str]:
    """Nothing where the distribution's keys are not known."""
    if not distro.server_arguments:
        return []
    return [
        f"{at}: {distro.name} is not known to have a key {_bare(key)}, so it is left out of the config of its nodes"
        for key, _, at in _given(config, path)
        if _type(distro, key) is None
    ]


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


def _fits(value: Any, wanted: ArgumentType | None) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return wanted in ("list", None) and all(not isinstance(each, (dict, list)) for each in value)
    if isinstance(value, dict):
        return False
    if wanted == "boolean":
        return isinstance(value, bool) or (isinstance(value, str) and value.lower() in _BOOLEANS)
    if wanted == "number":
        return not isinstance(value, bool) and _is_number(value)
    return True


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
