"""Label and field selectors of queries and of objects."""

from __future__ import annotations

from remuda.kube.errors import StatusError
from remuda.kube.selectors import (
    escape_field_value,
    label_selector_from,
    parse_field_selector,
    parse_label_selector,
    validate_label_selector,
)
from tests.fuzz.source import Source

_LABELS = ({}, {"app": "web", "size": "3"}, {"app": "", "x.io/tier": "a"}, {"size": "99999999999999999999"})
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "")


def check(data: bytes) -> None:
    """Raise if a selector is neither parsed nor refused, or changes its meaning when it is printed."""
    source = Source(data)
    kind = source.byte() % 3
    if kind == 2:
        _check_object(source)
        return
    text = source.rest().decode("utf-8", "replace")
    try:
        selector = parse_label_selector(text) if kind else parse_field_selector(text)
    except StatusError as error:
        assert error.code == 400, error
        return
    again = parse_label_selector(str(selector)) if kind else parse_field_selector(str(selector))
    for labels in _LABELS:
        assert selector.matches(labels) == again.matches(labels), str(selector)
    assert str(again) == str(selector)
    if not kind:
        escaped = parse_field_selector(f"metadata.name={escape_field_value(text)}")
        assert escaped.matches({"metadata.name": text})


def _check_object(source: Source) -> None:
    def words() -> list[str]:
        return [source.text() for _ in range(source.byte() % 4)]

    selector = {
        "matchLabels": {source.text(): source.text() for _ in range(source.byte() % 4)},
        "matchExpressions": [
            {"key": source.text(), "operator": source.pick(_OPERATORS), "values": words()}
            for _ in range(source.byte() % 4)
        ],
    }
    wrong = validate_label_selector(selector, "spec.selector")
    try:
        found = label_selector_from(selector)
    except StatusError as error:
        assert error.code == 400
        assert wrong, error
        return
    for labels in _LABELS:
        found.matches(labels)
