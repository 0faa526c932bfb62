"""The scheduling group: named priorities."""

from __future__ import annotations

from remuda.apiserver.kinds.columns import AGE, NAME, boolean, integer, string, value
from remuda.apiserver.kinds.declare import Rules, declare, one_of, unchanged
from remuda.apiserver.resource import Obj
from remuda.kube import errors
from remuda.kube.errors import FieldError

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def _validate(priority: Obj) -> list[FieldError]:
    found = []
    name, given = priority["metadata"].get("name", ""), priority.get("value", 0)
    if name.startswith("system-"):
        if complaint := _system_complaint(priority, name, given):
            why = f"priority class names with 'system-' prefix are reserved for system use only. error: {complaint}"
            found.append(errors.forbidden("metadata.name", why))
    elif given > _HIGHEST:
        found.append(errors.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}"))
    policies = ("PreemptLowerPriority", "Never")
    return found + one_of(priority.get("preemptionPolicy"), "preemptionPolicy", policies)


def _system_complaint(priority: Obj, name: str, given: int) -> str:
    if name not in _SYSTEM:
        return f"{name} is not a known system priority class"
    if given != _SYSTEM[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if priority.get("globalDefault") else ""


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    changed = new.get("value") != old.get("value")
    found = [errors.forbidden("value", "may not be changed in an update.")] if changed else []
    return found + unchanged(new, old, "preemptionPolicy")


PRIORITY_CLASSES = declare(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
    Rules(validate=_validate, validate_update=_validate_update),
    namespaced=False,
    short_names=("pc",),
    columns=(
        NAME,
        integer("Value", value("value", default=0)),
        boolean("Global-Default", value("globalDefault", default=False)),
        AGE,
        string("PreemptionPolicy", value("preemptionPolicy"), wide=True),
    ),
)

RESOURCES = (PRIORITY_CLASSES,)
