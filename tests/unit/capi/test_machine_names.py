from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import machine_names
from remuda.capi.machine_names import NamingError


def render(template: str, machine_set: str = "ms", random: str = "abcde") -> str:
    return machine_names.render(template, cluster="c", machine_set=machine_set, random=random)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (machine_names.DEFAULT, "ms-abcde"),
        ("{{.random}}", "abcde"),
        ("{{ .cluster.name }}-{{.machineSet.name}}-{{ .random }}", "c-ms-abcde"),
        ("x-{{- .random -}} -y", "x-abcde-y"),
        ("{{ .random }}{{ .random }}", "abcdeabcde"),
    ],
)
def test_machine_name_template_is_rendered(template: str, name: str) -> None:
    assert render(template) == name


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("fixed", "must be part of it"),
        ("{{ .machineSet.name }}", "must be part of it"),
        ("{{ .random }}-{{ .machine.name }}", "is not supported"),
        ('{{ printf "%s" .random }}', "is not supported"),
        ("{{ .random }}-{{ .cluster", "is not closed"),
        ("{{ if .random }}", "is not supported"),
    ],
)
def test_invalid_machine_name_template_is_rejected(template: str, complaint: str) -> None:
    with pytest.raises(NamingError, match=complaint):
        render(template)


@given(machine_set=st.text("abc-", min_size=1, max_size=253))
def test_long_machine_names_are_truncated_and_stay_distinct(machine_set: str) -> None:
    first, second = (
        render(machine_names.DEFAULT, machine_set, "aaaaa"),
        render(machine_names.DEFAULT, machine_set, "bbbbb"),
    )
    assert len(first) <= 63
    assert first != second
    assert first.endswith("aaaaa")


def test_random_name_parts_are_distinct_and_valid() -> None:
    found = {machine_names.random_part() for _ in range(50)}
    assert len(found) > 45
    assert all(len(part) == 5 and set(part) <= set("bcdfghjklmnpqrstvwxz2456789") for part in found)
