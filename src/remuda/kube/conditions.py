"""Conditions of `metav1.Condition` lists: read from typed objects, written into the raw JSON of a status.

Two things must stay true, or controllers would write endlessly: `lastTransitionTime` changes only with the status of a
condition, and the list is always in the same order. So a reconcile without news leaves the bytes unchanged. Conditions
of other writers are kept; only their position in the list may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remuda.kube import clock
from remuda.kube.objects import Condition

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"

# Length limits of metav1.Condition.
_LONGEST_MESSAGE = 32768

_PLACES = {"Available": 0, "Ready": 1, "Deleting": 3, "Paused": 4}
_MIDDLE = 2


def condition(type: str, status: str | bool, reason: str, message: str = "") -> Condition:
    """Return a condition that gets its time when it is written."""
    text = status if isinstance(status, str) else str(status)
    return Condition(type=type, status=text, reason=reason, message=message)


def find(conditions: Iterable[Condition], type: str) -> Condition | None:
    return next((one for one in conditions if one.type == type), None)


def is_true(conditions: Iterable[Condition], type: str) -> bool:
    return _has_status(conditions, type, TRUE)


def is_false(conditions: Iterable[Condition], type: str) -> bool:
    return _has_status(conditions, type, FALSE)


def _has_status(conditions: Iterable[Condition], type: str, status: str) -> bool:
    found = find(conditions, type)
    return found is not None and found.status == status


def put(
    status: dict[str, Any],
    conditions: Iterable[Condition],
    *,
    generation: int,
    remove: Iterable[str] = (),
    now: str | None = None,
) -> None:
    """Write conditions into a raw status, remove the given types, and sort the list.

    A new status gets the condition's own time if it has one (a mirrored condition keeps its source's), else the current
    time.
    """
    present = {str(one.get("type")): one for one in status.get("conditions") or () if isinstance(one, dict)}
    for type in remove:
        present.pop(type, None)
    for new in conditions:
        present[new.type] = _written(new, present.get(new.type), generation, now)
    if present:
        status["conditions"] = [present[type] for type in sorted(present, key=_place)]
    else:
        status.pop("conditions", None)


def _written(new: Condition, old: Mapping[str, Any] | None, generation: int, now: str | None) -> dict[str, Any]:
    since = old.get("lastTransitionTime") if old is not None and old.get("status") == new.status else None
    raw: dict[str, Any] = {
        "type": new.type,
        "status": new.status,
        "reason": new.reason,
        "message": _cut(new.message),
        "lastTransitionTime": since or new.last_transition_time or now or clock.now(),
    }
    if generation:
        raw["observedGeneration"] = generation
    return raw


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 3] + "..."


def _place(type: str) -> tuple[int, str]:
    """Return the sort key of a condition type: Available and Ready first, Deleting and Paused last, others by name."""
    return _PLACES.get(type, _MIDDLE), type
