"""The same question to the real server and to ours: codes, reasons, objects, events and their order must be equal."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest

from tests.interop.semantics import areas
from tests.interop.semantics.known_wording import KNOWN_WORDING, unexplained, unneeded
from tests.interop.semantics.normal import essence, wording
from tests.interop.semantics.trial import CASES, Case, Lab

areas.load()


@pytest.mark.parametrize("one", CASES.values(), ids=CASES.keys())
def test_our_server_answers_like_kube_apiserver(one: Case, upstream_lab: Lab, our_lab: Lab) -> None:
    theirs, ours = upstream_lab.observe(one), our_lab.observe(one)
    assert not _stopped(theirs), f"the case itself is wrong: {theirs[-1]}"
    _compare(essence(theirs), essence(ours))
    said, told = wording(theirs), wording(ours)
    if unexplained(one.id, said, told):
        _compare(said, told)
    assert not unneeded(one.id, said, told), f"{one.id} no longer differs there: take it off the list"


def test_known_wording_list_names_existing_cases() -> None:
    assert set(KNOWN_WORDING) <= set(CASES)


def _stopped(transcript: list[Any]) -> bool:
    return bool(transcript) and isinstance(transcript[-1], dict) and "stopped" in transcript[-1]


def _compare(theirs: Any, ours: Any) -> None:
    if theirs == ours:
        return
    lines = difflib.unified_diff(_lines(theirs), _lines(ours), "upstream", "ours", lineterm="", n=4)
    pytest.fail("\n".join(list(lines)[:120]), pytrace=False)


def _lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
