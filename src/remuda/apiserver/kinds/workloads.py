"""Checks shared by kinds that create pods from a template: matching selectors, counts and percentages."""

from __future__ import annotations

import re
from typing import Any

from remuda.apiserver.kinds.declare import non_negative
from remuda.apiserver.kinds.pod_spec import validate_template
from remuda.apiserver.resource import Obj
from remuda.kube import errors
from remuda.kube.errors import FieldError
from remuda.kube.selectors import SelectorError, label_selector_from, validate_label_selector

_MISMATCH = "`selector` does not match template `labels`"
_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_is_percent = re.compile("[0-9]+%").fullmatch


def template_labels(spec: Obj) -> dict[str, str]:
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}


def selector_errors(selector: Any, path: str, kind: str) -> list[FieldError]:
    """Return the errors in a selector, which is required and must not select everything."""
    if selector is None:
        return [errors.required(path)]
    found = validate_label_selector(selector, path)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        found.append(errors.invalid(path, selector, f"empty selector is invalid for {kind}"))
    return found


def mismatch_errors(spec: Obj, path: str) -> list[FieldError]:
    """Return the errors if the selector does not match the template: such a controller would create pods endlessly."""
    try:
        selector = label_selector_from(spec.get("selector"))
    except SelectorError:
        return [errors.invalid(f"{path}.selector", spec.get("selector"), "invalid label selector")]
    labels = template_labels(spec)
    if spec.get("selector") is not None and (selector.empty or selector.matches(labels)):
        return []
    return [errors.invalid(f"{path}.template.metadata.labels", shown_labels(labels), _MISMATCH)]


def shown_labels(labels: dict[str, str]) -> dict[str, str] | None:
    """Return labels as an error shows them: sorted, and null if there are none."""
    return dict(sorted(labels.items())) or None


def endless_template_errors(spec: Obj, path: str, kind: str) -> list[FieldError]:
    """Return the errors in a template whose pods must run forever."""
    found = validate_template(spec["template"], f"{path}.template")
    pod = spec["template"]["spec"]
    if pod.get("restartPolicy") != "Always":
        found.append(errors.not_supported(f"{path}.template.spec.restartPolicy", pod.get("restartPolicy"), ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {kind} is not Supported"
        found.append(errors.forbidden(f"{path}.template.spec.activeDeadlineSeconds", why))
    return found


def count_or_percent_errors(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, str):
        return [] if _is_percent(value) else [errors.invalid(path, value, _PERCENT)]
    return non_negative(value, path)


def over_hundred_errors(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, str) and _is_percent(value) and amount(value) > 100:
        return [errors.invalid(path, value, "must not be greater than 100%")]
    return []


def amount(value: Any) -> int:
    """Return the number in a count or percentage, to compare it with 0 and 100."""
    if isinstance(value, str):
        return int(value[:-1][:9]) if _is_percent(value) else 0
    return value or 0
