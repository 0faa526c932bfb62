"""Server-side apply and its field sets."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.apiserver.apply import fieldset
from remuda.apiserver.apply.fieldset import Fields
from remuda.apiserver.apply.server_side_apply import apply
from remuda.kube.errors import StatusError
from tests.fuzz.source import Source
from tests.unit.apiserver.apply.schemas import WIDGET

_VERSION = "example.com/v1"
_NAMES = (
    *(
        "spec",
        "status",
        "replicas",
        "ports",
        "port",
        "protocol",
        "items",
        "name",
        "value",
        "subs",
        "id",
        "tags",
        "nums",
    ),
    *("atoms", "cfg", "frozen", "free", "ios", "nested", "a", "b", "conditions", "type", "maps", "metadata", "labels"),
)
_MEMBERS = ("f:a", "f:b", ".", 'k:{"name":"x"}', 'k:{"port":80,"protocol":"TCP"}', 'v:"a"', "v:1", "i:0", "f:", "k:{")
_LARGEST = 1024 * 1024


def check(data: bytes) -> None:
    """Raise if a configuration is neither applied nor refused, or never comes to rest when applied again."""
    source = Source(data)
    if source.flag():
        _check_fields(_fields(source), _fields(source))
        return
    live = _object(source)
    try:
        live = _apply(None, live, "one")
        config = _object(source)
        after = _apply(live, config, source.pick(("one", "two")), force=source.flag())
    except StatusError as error:
        assert error.code < 500 or not error.reason, error
        return
    assert len(msgspec.json.encode(after)) <= _LARGEST


def _apply(live: dict[str, Any] | None, config: dict[str, Any], manager: str, force: bool = False) -> dict[str, Any]:
    def once(onto: dict[str, Any] | None) -> dict[str, Any]:
        return apply(
            onto, config, schema=WIDGET, manager=manager, force=force, api_version=_VERSION, now="2026-01-01T00:00:00Z"
        )

    after = once(live)
    settled = once(after)  # upstream leaves null where the last member was removed, and the next apply mends that
    assert once(settled) == settled
    return after


def _object(source: Source) -> dict[str, Any]:
    return {
        **source.object(_NAMES),
        "apiVersion": _VERSION,
        "kind": "Widget",
        "metadata": {"name": "x", "labels": {source.text(): source.text()}},
        "spec": source.object(_NAMES, 4),
    }


def _fields(source: Source) -> Fields | None:
    document = _document(source, 4)
    try:
        return fieldset.parse(document)
    except ValueError:
        return None


def _document(source: Source, depth: int) -> Any:
    if source.byte() % 16 == 15:
        return source.json((), 1)
    count = source.byte() % 5 if depth else 0
    return {
        source.pick(_MEMBERS) if source.byte() % 8 < 7 else source.text(): _document(source, depth - 1)
        for _ in range(count)
    }


def _check_fields(one: Fields | None, other: Fields | None) -> None:
    if one is None or other is None:
        return
    both = fieldset.union(one, other)
    assert fieldset.ordered(fieldset.union(other, one)) == fieldset.ordered(both)
    assert fieldset.ordered(fieldset.parse(both)) == fieldset.ordered(both)
    paths, first, second = (set(fieldset.members(fields)) for fields in (both, one, other))
    assert paths == first | second
    assert set(fieldset.members(fieldset.intersection(one, other))) == first & second
    assert set(fieldset.members(fieldset.difference(one, other))) == first - second
