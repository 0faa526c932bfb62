"""The comparison itself: what it levels out, and what it must not."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.known_wording import unexplained, unneeded
from tests.interop.semantics.normal import Normaliser, essence, wording

FIRST, SECOND = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def _object(uid: str, revision: str, **more: Any) -> dict[str, Any]:
    return {"kind": "X", "metadata": {"name": "a-qqqqq", "uid": uid, "resourceVersion": revision, **more}}


def _normal(*values: Any) -> list[Any]:
    normaliser = Normaliser("qqqqq", "https://127.0.0.1:6443")
    return [normaliser.value(value) for value in values]


def test_different_uids_and_revisions_normalize_equal() -> None:
    assert _normal(_object(FIRST, "5"), _object(FIRST, "7")) == _normal(_object(SECOND, "100"), _object(SECOND, "900"))


def test_unchanged_revision_normalizes_differently() -> None:
    assert _normal(_object(FIRST, "5"), _object(FIRST, "7")) != _normal(_object(FIRST, "5"), _object(FIRST, "5"))


def test_changed_uid_normalizes_differently() -> None:
    assert _normal(_object(FIRST, "5"), _object(FIRST, "5")) != _normal(_object(FIRST, "5"), _object(SECOND, "5"))


def test_absent_and_empty_fields_stay_distinct() -> None:
    assert _normal(_object(FIRST, "5")) != _normal(_object(FIRST, "5", labels={}))


def test_times_tags_and_addresses_are_normalized() -> None:
    [plain] = _normal({"a": "at 2026-01-02T03:04:05Z on 127.0.0.1:6443", "b-qqqqq": "2026-01-02T03:04:05.123456Z"})
    assert plain == {"a": "at <time> on SERVER", "b-TAG": "<micro time>"}


def test_generated_names_keep_their_prefix() -> None:
    [plain] = _normal({"metadata": {"name": "web-x7k2q", "generateName": "web-"}})
    assert plain["metadata"]["name"] == "web-<5>"


def test_order_of_status_causes_is_ignored() -> None:
    def status(*fields: str) -> dict[str, Any]:
        causes = [{"field": field, "message": "bad", "reason": "r"} for field in fields]
        listed = ", ".join(f"{field}: bad" for field in fields)
        return {"kind": "Status", "message": f'X "a" is invalid: [{listed}]', "details": {"causes": causes}}

    assert _normal(status("a", "b")) == _normal(status("b", "a"))
    assert _normal(status("a", "b")) != _normal(status("a", "c"))


def test_wording_is_separated_from_essence() -> None:
    body = {"kind": "Status", "message": "no", "code": 404, "details": {"causes": [{"message": "why", "field": "f"}]}}
    entry = {"code": 404, "body": body, "warnings": ["careful"]}
    assert sorted(wording([entry])) == ["careful", "no", "why"]
    assert essence([entry]) == essence([{**entry, "body": {**body, "message": "another"}}])
    assert essence([entry]) != essence([{**entry, "body": {**body, "code": 409}}])


def test_only_listed_wording_differences_are_accepted() -> None:
    known, start = "errors/accepts_with_a_choice", "406: Not Acceptable"
    assert unexplained(known, [f"{start}: x", "same"], ["other", "same"]) == []
    assert unexplained(known, ["a", "same"], ["b", "same"]) == [("a", "b")]
    assert unneeded(known, ["same"], ["same"]) == [start]
