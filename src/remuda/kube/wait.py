"""A wait, as a value: what is missing where, since when, what comes next, and where to read more.

The sentence made of it is the same everywhere: in conditions, in events, in `remuda describe` and in `remuda why`.
"""

from __future__ import annotations

import msgspec

from remuda.kube import clock


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    reason: str  # for conditions: one word, CamelCase
    on: str  # the object, as a person would look for it: "Machine default/m-1"
    missing: str  # what is not there yet, or has gone wrong
    since: float | None = None  # seconds since 1970; None: not known
    then: str = ""  # what happens next by itself, or what somebody has to do
    log: str = ""  # a command that shows more

    def __str__(self) -> str:
        since = f" (since {clock.rfc3339(self.since)})" if self.since is not None else ""
        rest = [self.then, f"see {self.log}" if self.log else ""]
        return "; ".join((f"{self.on}: {self.missing}{since}", *filter(None, rest)))
