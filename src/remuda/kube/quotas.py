"""Parser of the API server's error for a create above a ResourceQuota. Kubernetes reports it in no other form."""

from __future__ import annotations

import re
from typing import NamedTuple

_EXCEEDED = re.compile(r"exceeded quota: ([^,\s]+), requested: (\S+), used: (\S+), limited: (\S+)")


class Exceeded(NamedTuple):
    """Exceeded quota and its amounts, each as `resource=number`, joined by commas."""

    name: str
    requested: str
    used: str
    limited: str

    def __str__(self) -> str:
        return f"exceeded quota: {self.name}, requested: {self.requested}, used: {self.used}, limited: {self.limited}"


def find_exceeded(text: str) -> Exceeded | None:
    """Return the first quota that a message says is exceeded."""
    match = _EXCEEDED.search(text)
    return Exceeded(*match.groups()) if match is not None else None
