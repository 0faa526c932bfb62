"""Values that must be strings, and that YAML reads as something else: `no` is a boolean, `1.10` a number. Pure.

API servers answer that a boolean cannot be put into a string, and do not name the key. So it is found before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Fields with maps from strings to strings, wherever they are.
_MAPS = {
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "machineDeploymentLabels",
    "machineDeploymentAnnotations",
    "stringData",
}
_DATA = {"ConfigMap", "Secret"}  # kinds whose `data` is such a map
_FREE = {"chartValues", "machineGlobalConfig", "config"}  # of other programs, with types of their own
_SCHEMAS = {"CustomResourceDefinition"}  # they describe fields of these names


def wrong_types(obj: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each key or value that must be quoted."""
    found = list(_wrong_keys(obj, ""))
    if obj.get("kind") not in _SCHEMAS:
        found += _wrong_values(obj, "", obj.get("kind") in _DATA)
    return found


def _wrong_keys(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield f"{path or 'the object'} has the key {_shown(key)}, which is {_type(key)}: quote it"
            yield from _wrong_keys(inner, _join(path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _wrong_keys(inner, f"{path}[{at}]")


def _wrong_values(value: Any, path: str, has_data: bool) -> Iterator[str]:
    if isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _wrong_values(inner, f"{path}[{at}]", False)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            own = _join(path, key)
            if isinstance(inner, Mapping) and (key in _MAPS or (has_data and key == "data")):
                yield from _of_map(inner, own)
            elif key not in _FREE:
                yield from _wrong_values(inner, own, False)


def _of_map(value: Mapping[Any, Any], path: str) -> Iterator[str]:
    for key, inner in value.items():
        if isinstance(inner, bool | int | float):
            yield f"{_join(path, key)} is {_type(inner)} ({_shown(inner)}): quote it"


def _join(path: str, key: Any) -> str:
    return f"{path}.{_shown(key)}" if path else _shown(key)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    return "a boolean" if isinstance(value, bool) else "a number" if isinstance(value, int | float) else "no string"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
