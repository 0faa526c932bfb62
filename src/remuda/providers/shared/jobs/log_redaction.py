"""Redaction of secrets in all output of a Job.

Known are the credentials, the options that are secret by their model or by their name, tokens in the bootstrap data,
and the private key once there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from remuda.kube.objects import Field, json_name
from remuda.providers.shared.drivers import known_drivers

HIDDEN = "***"

_SHORTEST = 5  # shorter values occur in ordinary text
_NAMES = re.compile(r"(password|passwd|secret|token|private|credential|access_?key|api_?key)", re.IGNORECASE)
_TOKENS = re.compile(rb"(?i)token[a-z_]*\s*[=:]\s*['\"]?([^\s'\"]{16,})")


class Scrubber:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Add a secret to redact. Each line of a multi-line secret is one of its own: output comes line by line."""
        known = len(self._secrets)
        for line in (secret, *secret.splitlines()):
            if len(line.strip()) >= _SHORTEST and not line.startswith("-----"):
                self._secrets.add(line.strip())
        if len(self._secrets) != known:
            # A secret may contain a shorter one: replacing the shorter one first would leave the rest readable.
            longest_first = sorted(self._secrets, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)


def secret_options(driver: str, options: Mapping[str, Any], model: type[Any]) -> list[str]:
    """Return the values of secret options."""
    declared = {json_name(name) for name, hint in _hints(model).items() if _is_secret(hint)}
    declared.update(known_drivers.facts(driver, {}).secrets)
    return [
        text for name, value in options.items() if name in declared or _NAMES.search(name) for text in _texts(value)
    ]


def tokens(bootstrap: bytes) -> list[str]:
    return [found.decode("utf-8", "replace") for found in _TOKENS.findall(bootstrap)]


def _hints(model: type[Any]) -> dict[str, Any]:
    return get_type_hints(model, include_extras=True) if hasattr(model, "__struct_fields__") else {}


def _is_secret(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        isinstance(note, Field) and note.format == "password" for note in get_args(hint)[1:]
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for one in value for text in _texts(one)] if isinstance(value, list) else []
