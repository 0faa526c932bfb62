"""Chance that can be repeated."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from remuda.kube import chance


@pytest.fixture(autouse=True)
def _system_again() -> Iterator[None]:
    yield
    chance.use(None)


def test_the_same_source_gives_the_same_draws() -> None:
    def draws() -> tuple[str, str, float]:
        chance.use(random.Random(7))
        return chance.letters("abcdef", 8), chance.uid(), chance.between(1, 2)

    assert draws() == draws()


def test_the_system_repeats_nothing() -> None:
    assert len({chance.uid() for _ in range(100)}) == 100


def test_a_uid_is_a_random_uuid() -> None:
    assert uuid.UUID(chance.uid()).version == 4


def test_letters_are_of_the_alphabet() -> None:
    assert set(chance.letters("xy", 64)) == {"x", "y"}
