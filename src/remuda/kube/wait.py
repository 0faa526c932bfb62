"""Wait of an object as a value: what is missing, since when, what happens next, and where to read more.

It is rendered as the same sentence everywhere: in conditions, events, `remuda describe` and `remuda why`.
"""

from __future__ import annotations

import msgspec

from remuda.kube import clock


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    reason: str  # for conditions: one word, CamelCase
    on: str  # the object, by kind, namespace and name: "Machine default/m-1"
    missing: str  # what is missing, or has failed
    since: float | None = None  # seconds since 1970; None: not known
    then: str = ""  # what happens next, or what the user must do
    log: str = ""  # a command that shows more

    def __str__(self) -> str:
        since = f" (since {clock.rfc3339(self.since)})" if self.since is not None else ""
        rest = [self.then, f"see {self.log}" if self.log else ""]
        return "; ".join((f"{self.on}: {self.missing}{since}", *filter(None, rest)))
