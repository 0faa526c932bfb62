"""Random values that appear in objects: names and uids. They come from the system, unless a simulation sets its own
source, so that the same seed gives the same run. Secrets are never drawn from it.
"""

from __future__ import annotations

import random
import uuid

_system = random.SystemRandom()
_source: random.Random = _system


def use(source: random.Random | None) -> None:
    """Draw from `source` from now on; None: from the system again."""
    global _source
    _source = source or _system


def letters(alphabet: str, count: int) -> str:
    return "".join(_source.choices(alphabet, k=count))


def uid() -> str:
    return str(uuid.UUID(int=_source.getrandbits(128), version=4))


def between(low: float, high: float) -> float:
    return _source.uniform(low, high)
