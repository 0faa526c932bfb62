"""Structured input from bytes: numbers, choices, texts and JSON values.

Reading never fails: at the end of the bytes everything is zero, empty or the first choice. So every sequence of bytes
is an input, and a fuzzer that changes one byte changes one decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST_TEXT = 24
_MOST_ITEMS = 6
_DEEPEST = 5


class Source:
    """Reader of decisions from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        """Return the next byte, 0 at the end."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def pick(self, options: Sequence[T]) -> T:
        """Return one of at most 256 options."""
        return options[self.byte() % len(options)]

    def flag(self) -> bool:
        return bool(self.byte() & 1)

    def take(self, size: int) -> bytes:
        """Return at most so many of the next bytes."""
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        """Return everything that is left."""
        return self.take(len(self._data))

    def text(self, longest: int = _LONGEST_TEXT) -> str:
        """Return a short text."""
        return self.take(self.byte() % (longest + 1)).decode("utf-8", "replace")

    def number(self) -> int | float:
        """Return a number, often one at a border of what machines can hold."""
        edges = (0, 1, -1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 0.5, 1e300, 10)
        return self.pick(edges) if self.flag() else self.byte()

    def json(self, names: Sequence[str] = (), depth: int = _DEEPEST) -> Any:
        """Return a JSON value; members of objects have one of these names or a short text as name."""
        kind = self.byte() % (8 if depth else 5)
        if kind >= 6:
            return {self.name(names): self.json(names, depth - 1) for _ in range(self.byte() % _MOST_ITEMS)}
        if kind == 5:
            return [self.json(names, depth - 1) for _ in range(self.byte() % _MOST_ITEMS)]
        if kind == 4:
            return self.pick(names) if names else self.text()
        return (lambda: None, self.flag, self.number, self.text)[kind]()

    def object(self, names: Sequence[str] = (), depth: int = _DEEPEST) -> dict[str, Any]:
        """Return a JSON object."""
        return {self.name(names): self.json(names, depth - 1) for _ in range(self.byte() % _MOST_ITEMS)}

    def name(self, names: Sequence[str]) -> str:
        """Return one of these names, or seldom a short text."""
        return self.text() if not names or self.byte() % 8 == 7 else self.pick(names)
