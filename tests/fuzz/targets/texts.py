"""Small languages in fields of objects: quantities, JSON paths, schedules, durations, times, patterns, names."""

from __future__ import annotations

from remuda.kube import clock, cron, names, patterns
from remuda.kube.jsonpath import JSONPathError, compile_jsonpath, text_of
from remuda.kube.quantity import Quantity, QuantityError, canonical_quantity
from tests.fuzz.source import Source

_PATHS = (
    *(
        ".",
        "..",
        "spec",
        "[",
        "]",
        "*",
        "0",
        "-1",
        ":",
        "?(@",
        ")",
        "==",
        "'a'",
        "{",
        "}",
        "1e9",
        ",",
        "@",
        "$",
        "<",
        '"',
    ),
    *(".items", "[*]", "[?(@.name=='a')]", "[0:2:1]", "\\."),
)
_NUMBERS = (
    "1",
    "0",
    ".",
    "-",
    "+",
    "e",
    "E",
    "9" * 20,
    "Ki",
    "k",
    "m",
    "n",
    "Ei",
    "h",
    "s",
    "us",
    "T",
    "Z",
    ":",
    "-01",
)
_OBJECT = {"spec": {"items": [{"name": "a", "n": 1}, {"name": "b"}], "x": None}, "list": list(range(5))}


def check(data: bytes) -> None:
    """Raise if a text is neither understood nor refused, or changes its value when it is written again."""
    source = Source(data)
    kind = source.byte() % 5
    if source.flag():
        text = source.rest().decode("utf-8", "replace")
    else:
        text = "".join(source.pick(_PATHS if kind == 0 else _NUMBERS) for _ in range(source.byte() % 24))
    (_check_path, _check_quantity, _check_time, _check_pattern, _check_name)[kind](text)


def _check_path(text: str) -> None:
    try:
        find = compile_jsonpath(text)
    except JSONPathError:
        return
    try:
        assert len(text_of(find(_OBJECT))) <= 100_000
    except JSONPathError:
        pass


def _check_quantity(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(canonical_quantity(text)) == quantity
    assert len(str(quantity)) <= len(text) + 64


def _check_time(text: str) -> None:
    assert isinstance(cron.complaint(text), str)
    try:
        clock.parse_duration(text)
    except clock.BadDuration:
        pass
    try:
        clock.parse(text)
    except ValueError:
        pass


def _check_pattern(text: str) -> None:
    try:
        patterns.compile_pattern(text).search("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    except ValueError:
        pass


def _check_name(text: str) -> None:
    for complain in (names.dns1123_label, names.dns1123_subdomain, names.label_value, names.qualified_name):
        complain(text)
