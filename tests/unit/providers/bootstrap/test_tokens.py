"""Tokens: whom they let in, and until when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some

from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.providers.bootstrap import tokens
from remuda.providers.bootstrap.tokens import AFTER_USE_SECONDS, RegistrationToken, TokenLedger

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


def made() -> tuple[RegistrationToken, TokenLedger]:
    token = tokens.make("machine", ABOUT)
    return token, tokens.add(TokenLedger(), token, 2 * HOUR)


def test_token_encodes_purpose_and_has_256_random_bits() -> None:
    token = tokens.make("machine", ABOUT)
    assert tokens.parse(token.text) == token
    assert len(token.secret) == 43
    assert tokens.make("machine", ABOUT).secret != token.secret


def test_token_secret_is_hidden_in_repr_and_ledger() -> None:
    token, ledger = made()
    assert token.secret not in repr(token) + repr(ledger) + tokens.write(ledger)


@given(some.text(max_size=600))
def test_parsing_arbitrary_text_never_fails(text: str) -> None:
    found = tokens.parse(text)
    assert found is None or found.about.name


@given(some.sampled_from(["machine", "cluster"]), some.binary(max_size=40), some.text(max_size=10))
def test_parsing_arbitrary_names_never_fails(purpose: str, about: bytes, secret: str) -> None:
    found = tokens.parse(f"{purpose}.{tokens._encode(about)}.{secret}")
    if found is not None:
        assert found.about.namespace
        assert found.about.name
        assert "/" not in found.about.name


_TIMELESS = '{"entries": [{"hash": "a", "expires": "2020-01--1T00:00:20Z"}]}'


@pytest.mark.parametrize("text", ["", "nonsense", "{", "[]", '{"entries": 1}', '{"entries": [{"hash": 1}]}', _TIMELESS])
def test_unreadable_ledger_admits_no_token(text: str) -> None:
    token, _ = made()
    assert tokens.judge(tokens.read(text), token, "a") == "unknown"
    assert tokens.seconds_fresh(tokens.read(text), HOUR) == 0.0


def test_ledger_round_trips_through_annotation(watch: Watch) -> None:
    token, ledger = made()
    again = tokens.read(tokens.write(tokens.claim(ledger, token, "a")))
    assert tokens.judge(again, token, "a") == "good"
    assert tokens.user(again, token) == "a"


def test_token_is_valid_until_expiry(watch: Watch) -> None:
    token, ledger = made()
    watch.now += 2 * HOUR - 1
    assert tokens.judge(ledger, token, "a") == "good"
    watch.now += 1
    assert tokens.judge(ledger, token, "a") == "expired"


def test_used_token_is_valid_only_for_same_host_for_limited_time(watch: Watch) -> None:
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


def test_token_with_other_secret_is_unknown(watch: Watch) -> None:
    _, ledger = made()
    assert tokens.judge(ledger, tokens.make("machine", ABOUT), "a") == "unknown"


def test_adding_token_keeps_only_previous_token_valid(watch: Watch) -> None:
    first, ledger = made()
    second, third = tokens.make("machine", ABOUT), tokens.make("machine", ABOUT)
    ledger = tokens.add(ledger, second, 2 * HOUR)
    assert [tokens.judge(ledger, token, "a") for token in (first, second)] == ["good", "good"]
    ledger = tokens.add(ledger, third, 2 * HOUR)
    assert [tokens.judge(ledger, token, "a") for token in (first, second, third)] == ["unknown", "good", "good"]


def test_token_is_fresh_for_half_its_lifetime(watch: Watch) -> None:
    _, ledger = made()
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == HOUR
    watch.now += HOUR - 1
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == 1
    watch.now += 1
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == 0


def test_used_token_is_renewed_when_spent(watch: Watch) -> None:
    token, ledger = made()
    ledger = tokens.claim(ledger, token, "a")
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == AFTER_USE_SECONDS
    watch.now += AFTER_USE_SECONDS
    assert tokens.seconds_fresh(ledger, 2 * HOUR) == 0
