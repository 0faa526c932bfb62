"""Limit on nesting, so that no recursive function reaches Python's own limit.

Upstream's JSON decoder stops at 10,000 levels. Python's stack allows about a tenth of that. Real objects stay far
below: the deepest CRDs in use have about sixty levels of schema, which are 130 levels of JSON.
"""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 300
TOO_DEEP = "exceeded max depth"


def too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether containers nest deeper than `limit`. Iterates level by level, without recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        if not level:
            return False
        below: list[Any] = []
        for container in level:
            inner = container.values() if isinstance(container, dict) else container
            below.extend(x for x in inner if isinstance(x, dict | list))
        level = below
    return bool(level)
