"""Loader of untrusted YAML with limited work: user data, kubeconfigs, texts of a support bundle.

PyYAML has no limits. Its C composer recurses until the process crashes, so nesting is checked before composing. Merge
keys (`<<`) copy the merged entries, so their number is limited during the merge. Aliases share their value and cost
nothing here, but code that walks the result must visit shared values only once. When a value is written again, a shared
text is repeated, so repeated texts are limited as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

DEEPEST = 64
MOST_EVENTS = 100_000  # parsing them takes a thread one second, which slows down other requests
_MOST_MERGED = 10_000  # entries of mappings that merge keys may copy
_MOST_TEXT = 256 * 1024  # characters that aliases and merge keys may add

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooComplex(yaml.YAMLError):
    """Document that is nested too deeply, too large, has too many aliases, or grows too much by merge keys."""


class TooDeep(TooComplex):
    """Document that is nested too deeply."""


class TooLarge(TooComplex):
    """Document with more than `MOST_EVENTS` events."""


class _Loader(_SafeLoader):  # type: ignore[misc]  # in C where there is one
    merged = 0

    def flatten_mapping(self, node: Any) -> None:
        """Count merged entries. PyYAML calls this for each constructed mapping and for each one that is merged into
        another.
        """
        merges = any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value)
        super().flatten_mapping(node)
        if merges:
            self.merged += len(node.value)
            if self.merged > _MOST_MERGED:
                raise TooComplex("its merge keys (<<) add too many entries")


def events(text: str | bytes, *, deepest: int = DEEPEST, most: int | None = MOST_EVENTS) -> Iterator[Any]:
    """Yield the events of a text: every scalar, every alias, and both ends of every collection and document.

    Raises TooDeep, TooLarge and other yaml.YAMLErrors."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, _SafeLoader), 1):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > deepest:
            raise TooDeep(f"it is nested more than {deepest} levels deep")
        if most is not None and number > most:
            raise TooLarge(f"it has more than {most} values")
        yield event


def load(text: str | bytes, *, most_aliases: int | None = None) -> Any:
    """Return the value of one document. Raise yaml.YAMLError. `most_aliases`: for callers that visit shared values
    repeatedly.
    """
    try:
        _check_events(text, most_aliases)
        value = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML's own errors, for text that only looks like a date (2020-99-01) and for a tag of another type (`!!bool
        # x`).
        raise yaml.MarkedYAMLError(problem="a value does not match its type; put it in quotes") from error
    if _written_size(value) > _MOST_TEXT + len(text):
        raise TooComplex("its aliases and merge keys repeat too much text")
    return value


def _check_events(text: str | bytes, most_aliases: int | None) -> None:
    """Raise TooComplex for a document that must not be composed."""
    aliases = 0
    for event in events(text, most=None):
        aliases += isinstance(event, yaml.AliasEvent)
        if most_aliases is not None and aliases > most_aliases:
            raise TooComplex(f"it has more than {most_aliases} aliases")


def _written_size(value: Any) -> int:
    """Return the number of characters in texts when the value is written again: a shared mapping or list is written
    once and then referenced, a shared text is written each time.
    """
    size, pending, seen = 0, [value], set()
    while pending:
        one = pending.pop()
        if isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, dict | list | tuple | set) and id(one) not in seen:
            seen.add(id(one))
            pending += (*one, *one.values()) if isinstance(one, dict) else one
    return size
