"""ResourceQuota: how many objects of each kind a namespace may hold.

This server enforces `count/<plural>.<group>` for every kind it serves, and the short names that Kubernetes has for some
core kinds. It runs no Pods, so it does not enforce cpu, memory, pods and storage, nor quotas with scopes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from remuda.apiserver.kinds.columns import AGE, NAME, Cell, at, string
from remuda.apiserver.kinds.declare import Rules, declare
from remuda.apiserver.resource import Obj
from remuda.kube import errors
from remuda.kube.admission import ALLOWED, AdmissionResult, Review
from remuda.kube.errors import FieldError
from remuda.kube.quantity import Quantity

TABLE = "resourcequotas"
_COUNT = "count/"
_SHORT_NAMES = frozenset(
    ("configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services")
)
# Events expire by themselves. Kubernetes does not count them either.
_NOT_COUNTED = frozenset(("events", "events.events.k8s.io"))


class _Spec(msgspec.Struct, rename="camel"):
    hard: dict[str, str] | None = None
    scopes: list[str] | None = None
    scope_selector: Any = None


class _Quota(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class QuotaLimit(msgspec.Struct, frozen=True):
    """Enforced entry of `spec.hard`."""

    resource: str  # its name in the quota
    table: str
    most: int


_decode = msgspec.json.Decoder(_Quota).decode


@lru_cache(maxsize=1024)
def limits(stored: bytes) -> tuple[QuotaLimit, ...]:
    """Return the limits that a stored ResourceQuota enforces, in the order of their names."""
    spec = _decode(stored).spec
    if spec.scopes or spec.scope_selector:
        return ()
    return tuple(
        QuotaLimit(name, table, Quantity.parse(amount).value())
        for name, amount in sorted((spec.hard or {}).items())
        if (table := _counted(name))
    )


def _counted(name: str) -> str:
    """Return the table whose objects an entry of `spec.hard` counts; empty: none."""
    table = name.removeprefix(_COUNT) if name.startswith(_COUNT) else name if name in _SHORT_NAMES else ""
    return "" if table in _NOT_COUNTED else table


def warn_of_unenforced(review: Review) -> AdmissionResult:
    """Admit a ResourceQuota, with a warning that names the entries that have no effect here."""
    spec = (review.new or {}).get("spec")
    if review.subresource or not isinstance(spec, Mapping):
        return ALLOWED
    if spec.get("scopes") or spec.get("scopeSelector"):
        return AdmissionResult(
            warnings=("spec.scopes: this server runs no Pods, so a quota with scopes has no effect",)
        )
    hard = spec.get("hard")
    idle = sorted(name for name in hard if not _counted(name)) if isinstance(hard, Mapping) else []
    if not idle:
        return ALLOWED
    text = f"spec.hard: this server enforces count/<plural>.<group> only, so {', '.join(idle[:8])} has no effect"
    return AdmissionResult(warnings=(text,))


def _validate(quota: Obj) -> list[FieldError]:
    found = []
    for name, amount in (quota["spec"].get("hard") or {}).items():
        path, given = f"spec.hard[{name}]", Quantity.parse(amount)
        if given.nanos < 0:
            found.append(errors.invalid(path, amount, "must be greater than or equal to 0"))
        elif _counted(name) and given.milli_value() % 1000:
            found.append(errors.invalid(path, amount, "must be an integer"))
    return found


def _column(*, limits: bool) -> Cell:
    def cell(quota: Obj) -> str:
        hard, used = at(quota, "status", "hard", default={}), at(quota, "status", "used", default={})
        chosen = [name for name in sorted(hard) if name.startswith("limits.") == limits]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in chosen)

    return cell


RESOURCE_QUOTAS = declare(
    "",
    "v1",
    "ResourceQuota",
    TABLE,
    Rules(validate=_validate),
    short_names=("quota",),
    has_status=True,
    has_generation=False,
    returns_deleted=True,
    columns=(NAME, string("Request", _column(limits=False)), string("Limit", _column(limits=True)), AGE),
)
