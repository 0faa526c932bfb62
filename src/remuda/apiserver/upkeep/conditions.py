"""Conditions of objects that upkeep reports on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube import clock

Condition = dict[str, Any]


def condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return {"type": kind, "status": status, "lastTransitionTime": clock.now(), "reason": reason, "message": message}


def with_conditions(present: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """Conditions with some replaced or added; the time of one moves only when its status does."""
    conditions = {one["type"]: one for one in present}
    for one in new:
        old = conditions.get(one["type"])
        if old is not None and old["status"] == one["status"]:
            one = {**one, "lastTransitionTime": old.get("lastTransitionTime")}
        conditions[one["type"]] = one
    return list(conditions.values())
