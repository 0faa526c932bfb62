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


def test_two_servers_with_other_uids_and_revisions_are_the_same() -> None:
    assert _normal(_object(FIRST, "5"), _object(FIRST, "7")) == _normal(_object(SECOND, "100"), _object(SECOND, "900"))


def test_a_revision_that_did_not_change_is_another_answer() -> None:
    assert _normal(_object(FIRST, "5"), _object(FIRST, "7")) != _normal(_object(FIRST, "5"), _object(FIRST, "5"))


def test_a_uid_that_changed_is_another_answer() -> None:
    assert _normal(_object(FIRST, "5"), _object(FIRST, "5")) != _normal(_object(FIRST, "5"), _object(SECOND, "5"))


def test_absent_and_empty_stay_two_things() -> None:
    assert _normal(_object(FIRST, "5")) != _normal(_object(FIRST, "5", labels={}))


def test_times_tags_and_addresses_are_levelled() -> None:
    [plain] = _normal({"a": "at 2026-01-02T03:04:05Z on 127.0.0.1:6443", "b-qqqqq": "2026-01-02T03:04:05.123456Z"})
    assert plain == {"a": "at <time> on SERVER", "b-TAG": "<micro time>"}


def test_generated_names_keep_their_prefix() -> None:
    [plain] = _normal({"metadata": {"name": "web-x7k2q", "generateName": "web-"}})
    assert plain["metadata"]["name"] == "web-<5>"


def test_the_order_of_causes_is_levelled_with_the_message() -> None:
    def status(*fields: str) -> dict[str, Any]:
        causes = [{"field": field, "message": "bad", "reason": "r"} for field in fields]
        listed = ", ".join(f"{field}: bad" for field in fields)
        return {"kind": "Status", "message": f'X "a" is invalid: [{listed}]', "details": {"causes": causes}}

    assert _normal(status("a", "b")) == _normal(status("b", "a"))
    assert _normal(status("a", "b")) != _normal(status("a", "c"))


def test_sentences_are_apart_from_the_rest() -> None:
    body = {"kind": "Status", "message": "no", "code": 404, "details": {"causes": [{"message": "why", "field": "f"}]}}
    entry = {"code": 404, "body": body, "warnings": ["careful"]}
    assert sorted(wording([entry])) == ["careful", "no", "why"]
    assert essence([entry]) == essence([{**entry, "body": {**body, "message": "another"}}])
    assert essence([entry]) != essence([{**entry, "body": {**body, "code": 409}}])


def test_only_listed_sentences_may_differ() -> None:
    known, start = "errors/accepts_with_a_choice", "406: Not Acceptable"
    assert unexplained(known, [f"{start}: x", "same"], ["other", "same"]) == []
    assert unexplained(known, ["a", "same"], ["b", "same"]) == [("a", "b")]
    assert unneeded(known, ["same"], ["same"]) == [start]
