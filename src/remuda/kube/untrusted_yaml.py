"""Load untrusted YAML with bounded work: user data, kubeconfigs, texts of a support bundle.

PyYAML has no limits of its own. Its C composer recurses until the process ends, so nesting is bounded before anything
is composed. Merge keys (`<<`) copy what they merge, so the entries they add are bounded while they are merged. Aliases
alone share what they name and cost nothing here; whoever walks the result must visit shared values once. A text has no
place of its own when it is written again, so the repetition of texts is bounded as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

DEEPEST = 64
MOST_EVENTS = 100_000  # reading them takes a second of a thread, beside which others are slow
_MOST_MERGED = 10_000  # entries of mappings that merge keys may copy
_MOST_TEXT = 256 * 1024  # characters that aliases and merge keys may add

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooComplex(yaml.YAMLError):
    """Nested too deeply, too large, with too many aliases, or grown by merge keys."""


class TooDeep(TooComplex):
    """Nested too deeply."""


class TooLarge(TooComplex):
    """With more than `MOST_EVENTS`."""


class _Loader(_SafeLoader):  # type: ignore[misc]  # in C where there is one
    merged = 0

    def flatten_mapping(self, node: Any) -> None:
        """PyYAML calls this for each mapping that is constructed and for each one that is merged into another."""
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
    """Return the value of one document. Raises yaml.YAMLError.
    `most_aliases`: where the result is walked without care for shared values."""
    try:
        _check_events(text, most_aliases)
        value = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML's own, for what only looks like a date (2020-99-01) and for a tag of another type (`!!bool x`).
        raise yaml.MarkedYAMLError(problem="a value does not match its type; put it in quotes") from error
    if _written_size(value) > _MOST_TEXT + len(text):
        raise TooComplex("its aliases and merge keys repeat too much text")
    return value


def _check_events(text: str | bytes, most_aliases: int | None) -> None:
    """Raise TooComplex for what must not be composed."""
    aliases = 0
    for event in events(text, most=None):
        aliases += isinstance(event, yaml.AliasEvent)
        if most_aliases is not None and aliases > most_aliases:
            raise TooComplex(f"it has more than {most_aliases} aliases")


def _written_size(value: Any) -> int:
    """Return how many characters the texts have when the value is written again: a shared mapping or list is written
    once and then named, a shared text is written each time."""
    size, pending, seen = 0, [value], set()
    while pending:
        one = pending.pop()
        if isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, dict | list | tuple | set) and id(one) not in seen:
            seen.add(id(one))
            pending += (*one, *one.values()) if isinstance(one, dict) else one
    return size
