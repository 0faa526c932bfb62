"""YAML that every parser reads alike.

Parsers differ in which plain scalars they read as numbers, times or booleans. A string that any of them would convert
(the commit 12e4567 as a label) is quoted; an unquoted time is read as a string, as kubectl does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

_WIDE = 160
_AMBIGUOUS = re.compile(r"[-+]?(0[xob])?[0-9_.]+([eE][-+]?[0-9]+)?|[yYnN]")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write objects that are shared twice, without YAML aliases: kubectl reads aliases, people do not."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else '"' if _AMBIGUOUS.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


class _Loader(yaml.SafeLoader):
    pass


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def dump(value: Any) -> str:
    return dump_all([value])


def dump_all(values: Iterable[Any]) -> str:
    text = yaml.dump_all(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDE)
    return str(text)


def load_all(text: str) -> list[Any]:
    """Return all documents that are not empty. Raises yaml.YAMLError."""
    return [one for one in yaml.load_all(text, Loader=_Loader) if one is not None]
