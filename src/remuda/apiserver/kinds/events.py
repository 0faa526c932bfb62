"""Events: one store, two API groups.

The server stores events as core/v1; events.k8s.io/v1 shows the same objects with newer field names. Field selectors of
both groups use the stored form, so both resources declare the same fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda.apiserver.kinds import idl
from remuda.apiserver.kinds.canonical_form import normalizer
from remuda.apiserver.kinds.columns import NAME, Cell, at, since, string, value
from remuda.apiserver.kinds.declare import IMMUTABLE, Rules, declare
from remuda.apiserver.resource import Obj
from remuda.kube import errors, names
from remuda.kube.errors import FieldError

_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_LONGEST = (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024))
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)

_SELECTABLE = {
    **{f"involvedObject.{field}": ("involvedObject", field) for field in _REFERENCE_FIELDS},
    **{f"regarding.{field}": ("involvedObject", field) for field in _REFERENCE_FIELDS},
    "reason": ("reason",),
    "reportingComponent": ("reportingComponent",),
    "reportingController": ("reportingComponent",),
    "source": ("source", "component"),
    "type": ("type",),
}

_as_core = normalizer(idl.message("", "v1", "Event"))
_as_new = normalizer(idl.message("events.k8s.io", "v1", "Event"))


def to_core(event: Obj) -> Obj:
    """Convert an events.k8s.io/v1 Event to its stored form."""
    stored = {_OLD_NAMES.get(field, field): content for field, content in event.items()}
    stored["apiVersion"] = "v1"
    _as_core(stored)
    return stored


def from_core(event: Obj) -> Obj:
    """Convert a stored event to events.k8s.io/v1."""
    shown = {_NEW_NAMES.get(field, field): content for field, content in event.items()}
    shown["apiVersion"] = "events.k8s.io/v1"
    _as_new(shown)
    return shown


def _validate_core(event: Obj) -> list[FieldError]:
    return _common_errors(event, "reportingComponent")


def _common_errors(event: Obj, reporter: str) -> list[FieldError]:
    namespace = event["metadata"].get("namespace", "")
    about = at(event, "involvedObject", "namespace")
    allowed = ("", "default", "kube-system") if event.get("eventTime") else ("", "default")
    matches = namespace in allowed if not about else event.get("eventTime") or namespace == about
    found = []
    if not matches:
        found.append(errors.invalid("involvedObject.namespace", about, "does not match event.namespace"))
    return found + _reporter_errors(event, reporter) if event.get("eventTime") else found


def _reporter_errors(event: Obj, reporter: str) -> list[FieldError]:
    """Return the errors of the newer, stricter rules, which apply to events with an eventTime."""
    controller = event.get("reportingComponent") or ""
    found = [] if controller else [errors.required(reporter)]
    found += [errors.invalid(reporter, controller, why) for why in names.qualified_name(controller)]
    for field, limit in _LONGEST:
        text = event.get(field) or ""
        if not text and field != "message":
            found.append(errors.required(field))
        if len(text.encode("utf-8", "surrogatepass")) > limit:
            found.append(errors.invalid(field, "", f"can have at most {limit} characters"))
    return found


def _validate_new(event: Obj) -> list[FieldError]:
    return _common_errors(to_core(event), "reportingController")


def _validate_create(event: Obj) -> list[FieldError]:
    core = to_core(event)
    found = _series_errors(core)
    if not core.get("eventTime"):
        found.append(errors.required("eventTime"))
    if core.get("type") not in ("Normal", "Warning"):
        found.append(errors.invalid("type", "", f"has invalid value: {core.get('type', '')}"))
    unset = [field for field in ("firstTimestamp", "lastTimestamp", "count", "source") if core.get(field)]
    return found + [errors.invalid(field, "", "needs to be unset") for field in unset]


def _series_errors(event: Obj) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    found = []
    if (series.get("count") or 0) < 2:
        found.append(errors.invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        found.append(errors.required("series.lastObservedTime"))
    return found


def _validate_new_update(new: Obj, old: Obj) -> list[FieldError]:
    event, before = to_core(dict(new)), to_core(dict(old))
    found = _series_errors(event) if event.get("series") != before.get("series") else []
    return found + [
        errors.invalid(_shown(field), event.get(field), IMMUTABLE)
        for field in _FIXED
        if event.get(field) != before.get(field)
    ]


def _shown(field: str) -> str:
    return "reportingController" if field == "reportingComponent" else field


def _first_seen(event: Obj) -> str:
    return since(at(event, "firstTimestamp") or at(event, "eventTime"))


def _last_seen(event: Obj) -> str:
    if series := event.get("series"):
        return since(series.get("lastObservedTime"))
    return since(event["lastTimestamp"]) if event.get("lastTimestamp") else _first_seen(event)


def _object(event: Obj) -> str:
    kind, name = at(event, "involvedObject", "kind").lower(), at(event, "involvedObject", "name")
    return f"{kind}/{name}" if name else kind


def _source(event: Obj) -> str:
    component = at(event, "source", "component") or at(event, "reportingComponent")
    instance = at(event, "source", "host") or at(event, "reportingInstance")
    return f"{component}, {instance}" if instance else component


def _count(event: Obj) -> Any:
    series = event.get("series")
    return series.get("count") if series else event.get("count") or 1


_CELLS: tuple[tuple[str, Cell, bool], ...] = (
    ("Last Seen", _last_seen, False),
    ("Type", value("type"), False),
    ("Reason", value("reason"), False),
    ("Object", _object, False),
    ("Subobject", value("involvedObject", "fieldPath"), True),
    ("Source", _source, True),
    ("Message", lambda event: str(at(event, "message")).strip(), False),
    ("First Seen", _first_seen, True),
    ("Count", _count, True),
)
_NAME = replace(NAME, priority=1)


def _of_new(cell: Cell) -> Cell:
    return lambda event: cell(to_core(event))


_SHARED: dict[str, Any] = {
    "short_names": ("ev",),
    "has_generation": False,
    "allow_create_on_update": True,
    "collects_garbage": False,
    "selectable": _SELECTABLE,
    "table_name": "events",
    "named_group": "",
}

CORE_EVENTS = declare(
    "",
    "v1",
    "Event",
    "events",
    Rules(validate=_validate_core),
    columns=(*(string(name, cell, wide=wide) for name, cell, wide in _CELLS), _NAME),
    **_SHARED,
)
EVENTS = declare(
    "events.k8s.io",
    "v1",
    "Event",
    "events",
    Rules(validate=_validate_new, validate_create=_validate_create, validate_update=_validate_new_update),
    columns=(*(string(name, _of_new(cell), wide=wide) for name, cell, wide in _CELLS), _NAME),
    storage_version="v1",
    to_storage=to_core,
    from_storage=from_core,
    **_SHARED,
)

RESOURCES = (EVENTS,)
