"""Construction of an admission function from a kind's defaults and complaints.

An object is validated with its defaults. An update is not refused for errors that the stored object already had:
otherwise a newer rule would keep controllers from finishing their work on older objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from remuda.kube.admission import ALLOWED, AdmissionFunction, AdmissionResult, Review
from remuda.kube.errors import FieldError, invalid
from remuda.kube.objects import Kind, Object, without_nulls
from remuda.kube.patches import apply_merge_patch

T = TypeVar("T", bound=Object)

Defaults = Callable[[T, T | None], dict[str, Any]]  # a merge patch of the new object
Complaints = Callable[[T], list[FieldError]]
Transitions = Callable[[T, T], list[FieldError]]  # old, new
Among = Callable[[Review, T | None, T], AdmissionResult]  # old, new, other objects: further errors, and warnings


def admission(
    kind: Kind[T],
    *,
    complaints: Complaints[T],
    defaults: Defaults[T] = lambda new, old: {},
    transitions: Transitions[T] = lambda old, new: [],
    among: Among[T] = lambda review, old, new: ALLOWED,
) -> AdmissionFunction:
    """Return the function for writes of whole objects; writes of subresources pass."""

    def admit(review: Review) -> AdmissionResult:
        if review.subresource or review.new is None:
            return ALLOWED
        try:
            old = _read(kind, review.old) if review.old is not None else None
            new = _read(kind, review.new)
        except msgspec.ValidationError as error:
            return AdmissionResult(errors=(_unreadable(error),))
        patch = _needed(defaults(new, old), review.new)
        if patch:
            new = _read(kind, apply_merge_patch(review.new, patch))
        errors = complaints(new)
        if errors and old is not None:
            known = {str(error) for error in complaints(old)}
            errors = [error for error in errors if str(error) not in known]
        if old is not None:
            errors += transitions(old, new)
        if errors:
            return AdmissionResult(errors=tuple(errors))
        seen = among(review, old, new)
        return AdmissionResult(patch=patch or None, warnings=seen.warnings, errors=seen.errors)

    return admit


def _read(kind: Kind[T], value: dict[str, Any]) -> T:
    judged = {name: value[name] for name in ("metadata", "spec") if name in value}
    try:
        return msgspec.convert(judged, kind.type)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(judged), kind.type)


def read(kind: Kind[T], value: dict[str, Any] | None) -> T | None:
    """Return an object as admission judges it; None where there is none, or of the wrong shape."""
    try:
        return _read(kind, value) if value is not None else None
    except msgspec.ValidationError:
        return None


def _unreadable(error: msgspec.ValidationError) -> FieldError:
    """Return the error for an object that does not fit its type. The schema would reject it too, but is checked
    later."""
    detail, _, path = str(error).partition(" - at `$.")
    return invalid(path.removesuffix("`"), "", detail)


def _needed(patch: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a merge patch that would change the value."""
    found: dict[str, Any] = {}
    for key, wanted in patch.items():
        present = value.get(key)
        if isinstance(wanted, dict):
            inner = _needed(wanted, present if isinstance(present, dict) else {})
            if inner:
                found[key] = inner
        elif wanted != present:
            found[key] = wanted
    return found
