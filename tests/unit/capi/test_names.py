from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.kube import names as kube_names


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("workers", "workers"),
        ("", ""),
        ("a" * 63, "a" * 63),
        ("a" * 64, "hash_2W8PhQ_z"),
        ("machineSetName" * 12, "hash_FR_ghQ_z"),
    ],
)
def test_label_value_matches_cluster_api_hashing(name: str, label: str) -> None:
    assert names.label_value(name) == label


def test_extremely_long_name_is_hashed_quickly() -> None:
    started = time.process_time()
    assert kube_names.label_value(names.label_value("é" * 1_400_000)) == []
    assert time.process_time() - started < 0.1


def test_label_digest_is_fnv_1a() -> None:
    assert [names._fnv32a(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


@given(st.text(max_size=300))
def test_label_value_of_any_name_is_valid(name: str) -> None:
    assert kube_names.label_value(names.label_value(name)) == []


@given(st.text(max_size=100))
def test_label_value_is_idempotent(name: str) -> None:
    once = names.label_value(name)
    assert names.label_value(once) == once


def test_name_constants_are_valid_qualified_names() -> None:
    constants = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    keys = [value for name, value in constants.items() if name not in ("GROUP", "VERSION", "API_VERSION")]
    assert len(keys) > 50
    assert [key for key in keys if kube_names.qualified_name(key)] == []
