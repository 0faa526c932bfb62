"""Formats and patterns, with the examples upstream's own documentation gives for them."""

from __future__ import annotations

import time

import pytest

from remuda.apiserver.schema.formats import _CHECKS, matcher, string_format
from remuda.kube.patterns import BadPattern


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "date-time",
            ["2014-12-15T19:30:20.000Z", "2020-02-29t00:00:00+01:00", "0000-01-01T00:00:00Z", "2025-05-31T01:02:03Z"],
            ["", "2014-12-15", "2021-02-29T00:00:00Z", "2021-04-31T00:00:00Z", "2014-12-15T24:00:00Z", "x" * 20],
        ),
        ("datetime", ["2014-12-15T19:30:20Z"], ["2014-12-15T19:30:20"]),
        ("date", ["2006-01-02"], ["2006-1-2", "2006-13-01", "2006-02-30"]),
        ("duration", ["22 ns", "1h30m", "2 days", "0", "-1.5h", "3 weeks"], ["", "h", "5", "two days"]),
        ("byte", ["YQ==", "YWJj"], ["", "YQ=", "YQ", "====", "Y!Jj"]),
        ("ipv4", ["10.0.0.1", "010.0.0.01"], ["10.0.0", "256.0.0.1", "::1", "10.0.0.1/8"]),
        ("ipv6", ["::1", "fe80::1", "::ffff:10.0.0.1"], ["10.0.0.1", "::1%eth0", ":::"]),
        ("cidr", ["10.0.0.0/8", "fd00::/64"], ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "/8"]),
        ("mac", ["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab"], ["01:23:45:67:89", "01:23-45:67:89:ab"]),
        ("uri", ["http://a.b/c?d=e", "/a", "mailto:a@b", "urn:x"], ["", "a/b", "http://a b/", "http://a:x/", "/%zz"]),
        ("email", ["a@b.c", "A B <a@b>", '"x y"@b'], ["a", "a@", "@b", "a b@c", "a@b>"]),
        ("hostname", ["a", "a.example.com", "ü.example"], ["", "-a", "a..b", "a_b.com", "a" * 64 + ".com"]),
        ("uuid", ["6ba7b810-9dad-11d1-80b4-00C04FD430C8", "6ba7b8109dad11d180b400c04fd430c8"], ["6ba7b810", ""]),
        ("uuid3", ["bcd02e22-68f0-3046-a512-327cca9def8f"], ["bcd02e22-68f0-4046-a512-327cca9def8f"]),
        ("uuid4", ["025b0d74-00a2-4048-bf57-227c5111bb34"], ["025b0d74-00a2-4048-0f57-227c5111bb34"]),
        ("uuid5", ["886313e1-3b8a-5372-9b90-0c9aee199e5d"], ["886313e1-3b8a-4372-9b90-0c9aee199e5d"]),
        ("isbn", ["0321751043", "978-0321751041", "012000030X"], ["0321751044", ""]),
        ("isbn10", ["0321751043"], ["978-0321751041"]),
        ("isbn13", ["978-0321751041"], ["0321751043"]),
        ("creditcard", ["4111-1111-1111-1111"], ["4111-1111-1111-1112", "1"]),
        ("ssn", ["111-11-1111", "111 11 1111"], ["111111111", "111-11-111"]),
        ("hexcolor", ["#FFF", "FFFFFF"], ["#FF", "#GGGGGG"]),
        ("rgbcolor", ["rgb(255, 0,19)"], ["rgb(256,0,0)", "rgb(1,2)"]),
        ("bsonobjectid", ["507f1f77bcf86cd799439011"], ["507f1f77bcf86cd79943901", "x" * 24]),
        ("password", ["", "anything"], []),
        ("k8s-short-name", ["a", "a-b", "1"], ["", "-a", "A", "a.b", "a" * 64]),
        ("k8s-long-name", ["a.b", "a" * 64], ["a..b", ".a", "a" * 254]),
    ],
)
def test_string_format_accepts_valid_and_rejects_invalid_text(name: str, good: list[str], bad: list[str]) -> None:
    check = string_format(name)
    assert check is not None
    assert [text for text in good if not check(text)] == []
    assert [text for text in bad if check(text)] == []


def test_unknown_formats_are_not_enforced() -> None:
    assert string_format("int-or-string") is None


@pytest.mark.parametrize("name", sorted(_CHECKS))
def test_string_format_checks_are_fast_on_long_text(name: str) -> None:
    """As long as a body may be, of each sign, and of the pairs that formats look for."""
    check = string_format(name)
    assert check is not None
    worst = ""
    for sign in ("a", "1", "-", " ", "<", "\n", "é", "a@", "1.", "::", "%41", '"\\', "1 d", "a:/"):
        for begin in ("", "http://"):
            text = begin + sign * (2_900_000 // len(sign))
            started = time.process_time()
            check(text)
            if time.process_time() - started > 0.5:
                worst = sign
    assert worst == ""


def test_patterns_use_go_regexp_semantics() -> None:
    assert matcher(r"^[a-z]\z")("a")
    assert not matcher("^a$")("a\n")
    assert matcher(r"\p{Lu}")("É")
    assert matcher("b")("abc")


def test_cached_pattern_results_are_consistent() -> None:
    match = matcher("^a+$")
    texts = ["a" * n for n in range(1000)] + ["b" * n for n in range(1000)]
    first = [match(text) for text in texts]
    assert [match(text) for text in texts] == first
    assert first.count(True) == 999


def test_pattern_matching_is_linear_time() -> None:
    started = time.process_time()
    assert not matcher("^(a+)+$")("a" * 50_000 + "b")
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a**", "error parsing regexp: invalid nested repetition operator: `**`"),
        ("(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
        ("*", "error parsing regexp: missing argument to repetition operator: `*`"),
    ],
)
def test_invalid_pattern_error_matches_go(pattern: str, said: str) -> None:
    with pytest.raises(BadPattern) as caught:
        matcher(pattern)
    assert str(caught.value) == said
