"""Chance that can be repeated."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from remuda.kube import random_source


@pytest.fixture(autouse=True)
def _system_again() -> Iterator[None]:
    yield
    random_source.use(None)


def test_seeded_random_source_is_repeatable() -> None:
    def draws() -> tuple[str, str, float]:
        random_source.use(random.Random(7))
        return random_source.letters("abcdef", 8), random_source.uid(), random_source.between(1, 2)

    assert draws() == draws()


def test_system_random_uids_are_unique() -> None:
    assert len({random_source.uid() for _ in range(100)}) == 100


def test_uid_is_a_version_4_uuid() -> None:
    assert uuid.UUID(random_source.uid()).version == 4


def test_random_letters_come_from_the_alphabet() -> None:
    assert set(random_source.letters("xy", 64)) == {"x", "y"}
