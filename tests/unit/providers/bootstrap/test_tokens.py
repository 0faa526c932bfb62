"""Tokens: whom they let in, and until when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some

from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.providers.bootstrap import tokens
from remuda.providers.bootstrap.tokens import AFTER_USE_SECONDS, Ledger, Token

ABOUT = Key("ns", "b")
HOUR = 3600.0


class Watch:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Iterator[Watch]:
    source = Watch()
    clock.use(source)
    yield source
    clock.use(None)


def made() -> tuple[Token, Ledger]:
    token = tokens.make("machine", ABOUT)
    return token, tokens.add(Ledger(), token, 2 * HOUR)


def test_a_token_says_what_it_is_for_and_holds_256_bits() -> None:
    token = tokens.make("machine", ABOUT)
    assert tokens.parse(token.text) == token
    assert len(token.secret) == 43
    assert tokens.make("machine", ABOUT).secret != token.secret


def test_a_token_is_not_shown_by_accident() -> None:
    token, ledger = made()
    assert token.secret not in repr(token) + repr(ledger) + tokens.write(ledger)


@given(some.text(max_size=600))
def test_anything_may_be_shown_as_a_token(text: str) -> None:
    found = tokens.parse(text)
    assert found is None or found.about.name


@given(some.sampled_from(["machine", "cluster"]), some.binary(max_size=40), some.text(max_size=10))
def test_anything_may_be_in_the_place_of_a_name(purpose: str, about: bytes, secret: str) -> None:
    found = tokens.parse(f"{purpose}.{tokens._encode(about)}.{secret}")
    if found is not None:
        assert found.about.namespace
        assert found.about.name
        assert "/" not in found.about.name


_TIMELESS = '{"entries": [{"hash": "a", "expires": "2020-01--1T00:00:20Z"}]}'


@pytest.mark.parametrize("text", ["", "nonsense", "{", "[]", '{"entries": 1}', '{"entries": [{"hash": 1}]}', _TIMELESS])
def test_a_ledger_that_cannot_be_read_lets_nobody_in(text: str) -> None:
    token, _ = made()
    assert tokens.judge(tokens.read(text), token, "a") == "unknown"
    assert tokens.seconds_fresh(tokens.read(text), HOUR) == 0.0


def test_a_ledger_survives_its_annotation(watch: Watch) -> None:
    token, ledger = made()
    again = tokens.read(tokens.write(tokens.claim(ledger, token, "a")))
    assert tokens.judge(again, token, "a") == "good"
    assert tokens.user(again, token) == "a"


def test_it_is_good_until_its_end(watch: Watch) -> None:
    token, ledger = made()
    watch.now += 2 * HOUR - 1
    assert tokens.judge(ledger, token, "a") == "good"
    watch.now += 1
    assert tokens.judge(ledger, token, "a") == "expired"


def test_after_its_first_use_it_is_good_for_that_host_for_a_while(watch: Watch) -> None:
    token, ledger = made()
    ledger = tokens.claim(ledger, token, "a")
    assert tokens.claim(ledger, token, "a") is ledger
    assert [tokens.judge(ledger, token, id) for id in ("a", "b")] == ["good", "replayed"]
    watch.now += AFTER_USE_SECONDS - 1
    assert tokens.judge(ledger, token, "a") == "good"
    watch.now += 1
    assert [tokens.judge(ledger, token, id) for id in ("a", "b")] == ["spent", "replayed"]
    watch.now += 2 * HOUR
    assert [tokens.judge(ledger, token, id) for id in ("a", "b")] == ["expired", "replayed"]


def test_another_secret_is_not_known(watch: Watch) -> None:
    _, ledger = made()
    assert tokens.judge(ledger, tokens.make("machine", ABOUT), "a") == "unknown"


def test_a_new_token_leaves_the_one_before_it_good_and_the_one_before_that_not(watch: Watch) -> None:
    first, ledger = made()
    second, third = tokens.make("machine", ABOUT), tokens.make("machine", ABOUT)
    ledger = tokens.add(ledger, second, 2 * HOUR)
    assert [tokens.judge(ledger, token, "a") for token in (first, second)] == ["good", "good"]
    ledger = tokens.add(ledger, third, 2 * HOUR)
    assert [tokens.judge(ledger, token, "a") for token in (first, second, third)] == ["unknown", "good", "good"]


def test_whoever_starts_a_server_always_finds_a_token_with_half_its_time_left(watch: Watch) -> None:
    _, ledger = made()
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == HOUR
    watch.now += HOUR - 1
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == 1
    watch.now += 1
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == 0


def test_a_used_token_is_followed_by_a_new_one_when_it_is_spent(watch: Watch) -> None:
    token, ledger = made()
    ledger = tokens.claim(ledger, token, "a")
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == AFTER_USE_SECONDS
    watch.now += AFTER_USE_SECONDS
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == 0
