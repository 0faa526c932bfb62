"""Names of new Machines, from a template such as `{{ .machineSet.name }}-{{ .random }}`.

Templates use Go's template language. Only the substitution of the three known values is supported, with Go's trimming
of blanks (`{{-`, `-}}`). Anything else is rejected with a message.
"""

from __future__ import annotations

import re

from remuda.kube import random_source

DEFAULT = "{{ .machineSet.name }}-{{ .random }}"
LONGEST = 63  # a Machine's name becomes a label of its Node
_RANDOM_LENGTH = 5
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alike digits, so that no words appear
_VALUES = (".cluster.name", ".machineSet.name", ".random")
_ACTION = re.compile(r"(?:\s*\{\{-\s|\{\{)(?P<action>.*?)(?:\s-\}\}\s*|\}\})", re.DOTALL)


class NamingError(ValueError):
    """Unsupported template."""


def check(template: str) -> None:
    """Raise NamingError unless the template is supported and gives unique names."""
    actions = [match["action"].strip() for match in _ACTION.finditer(template)]
    for action in actions:
        if action not in _VALUES:
            raise NamingError(f"{{{{ {action} }}}} is not supported; use {', '.join(_VALUES)}")
    if "{{" in _ACTION.sub("", template):
        raise NamingError("a {{ is not closed by }}")
    if ".random" not in actions:
        raise NamingError("{{ .random }} must be part of it")


def render(template: str, *, cluster: str, machine_set: str, random: str) -> str:
    """Return the name, cut to its maximum length before the random part. Raise NamingError."""
    check(template)
    values = {".cluster.name": cluster, ".machineSet.name": machine_set, ".random": random}
    name = _ACTION.sub(lambda match: values[match["action"].strip()], template)
    return name if len(name) <= LONGEST else name[: LONGEST - len(random)] + random


def random_part() -> str:
    return random_source.letters(_ALPHABET, _RANDOM_LENGTH)
