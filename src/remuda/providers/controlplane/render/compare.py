"""From two plans of a host to what the second one means for it."""

from __future__ import annotations

from typing import Literal

from remuda.providers.controlplane.render.plan import File, Plan, read
from remuda.providers.controlplane.render.stamps import DRAIN_HASH, RESTART_STAMP

# From least to most.
Change = Literal["none", "minor", "apply", "restart", "drain"]


def compare(before: bytes, after: bytes) -> Change:
    """`minor`: files nobody needs to wait for. `apply`: nothing is restarted. `restart`: the service is. `drain`: and
    Pods are moved away before, where the user wants that. A first plan starts the service; it has no Pods yet."""
    if before == after:
        return "none"
    if not before:
        return "restart"
    old, new = read(before), read(after)
    if _runs_the_same(old, new) and all(file.minor for file in changed_files(old, new)):
        return "minor"
    was, now = old.environment(), new.environment()
    if was.get(RESTART_STAMP) != now.get(RESTART_STAMP):
        return "restart" if was.get(DRAIN_HASH) == now.get(DRAIN_HASH) else "drain"
    return "apply"


def changed_files(old: Plan, new: Plan) -> list[File]:
    """Return the files that differ between the two plans, in their newer version."""
    was, now = ({file.path: file for file in plan.files} for plan in (old, new))
    return [
        now[path] if path in now else was[path]
        for path in dict.fromkeys((*now, *was))
        if was.get(path) != now.get(path)
    ]


def _runs_the_same(old: Plan, new: Plan) -> bool:
    return (old.instructions, old.periodic, old.probes) == (new.instructions, new.periodic, new.probes)
