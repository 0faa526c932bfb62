"""Semantic versions: strict, or on request tolerant of a leading v, missing parts and leading zeros."""

from __future__ import annotations

import json
import re
from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import UINT_MAX, CelError, Opaque

LIBRARY = Library()

_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_WORD = re.compile(r"[0-9A-Za-z\-]+", re.ASCII)

# Sort key of one part of a pre-release: numbers sort below words.
Part = tuple[int, int, str]


class Semver(Opaque):
    __slots__ = ("numbers", "pre")
    type_name = "kubernetes.Semver"

    def __init__(self, numbers: tuple[int, int, int], pre: tuple[Part, ...]) -> None:
        self.numbers = numbers
        self.pre = pre

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.numbers, not self.pre, self.pre)  # a version sorts above its pre-releases

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)


def parse(text: str) -> Semver:
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    rest, plus, build = parts[2].partition("+")
    patch, dash, pre = rest.partition("-")
    numbers = (_number("Major", parts[0]), _number("Minor", parts[1]), _number("Patch", patch))
    found = tuple(_pre_release(part) for part in pre.split(".")) if dash else ()
    if plus:
        for part in build.split("."):
            if not part:
                raise CelError("Build meta data is empty")
            if not _WORD.fullmatch(part):
                raise CelError(f"Invalid character(s) found in build meta data {json.dumps(part)}")
    return Semver(numbers, found)


def _number(name: str, text: str) -> int:
    quoted = json.dumps(text)
    if text and not _NUMBER.fullmatch(text):
        raise CelError(f"Invalid character(s) found in {name.lower()} number {quoted}")
    if len(text) > 1 and text[0] == "0":
        raise CelError(f"{name} number must not contain leading zeroes {quoted}")
    if not text:
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > UINT_MAX:
        raise CelError(f"strconv.ParseUint: parsing {quoted}: value out of range")
    return int(text)


def _pre_release(part: str) -> Part:
    if not part:
        raise CelError("Prerelease is empty")
    if _NUMBER.fullmatch(part):
        if len(part) > 1 and part[0] == "0":
            raise CelError(f"Numeric PreRelease version must not contain leading zeroes {json.dumps(part)}")
        if len(part) > 20 or int(part) > UINT_MAX:
            raise CelError(f"strconv.ParseUint: parsing {json.dumps(part)}: value out of range")
        return (0, int(part), "")
    if not _WORD.fullmatch(part):
        raise CelError(f"Invalid character(s) found in prerelease {json.dumps(part)}")
    return (1, 0, part)


def _normalized(text: str) -> str:
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1].isdigit() and stripped[:1].isascii() else "0" + stripped


def _parse(text: str, normalize: bool = False) -> Semver:
    return parse(_normalized(text) if normalize else text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _parse(text, normalize)
    except CelError:
        return False
    return True


def _compare(a: Semver, b: Semver) -> int:
    return (a.order > b.order) - (a.order < b.order)


LIBRARY.function("semver(string): kubernetes.Semver", _parse, cost=cost.of_first)
LIBRARY.function("semver(string, bool): kubernetes.Semver", _parse, cost=cost.of_first)
LIBRARY.function("isSemver(string): bool", _is_semver, cost=cost.of_first)
LIBRARY.function("isSemver(string, bool): bool", _is_semver, cost=cost.of_first)
LIBRARY.method("kubernetes.Semver.isGreaterThan(kubernetes.Semver): bool", lambda a, b: a.order > b.order)
LIBRARY.method("kubernetes.Semver.isLessThan(kubernetes.Semver): bool", lambda a, b: a.order < b.order)
LIBRARY.method("kubernetes.Semver.compareTo(kubernetes.Semver): int", _compare)
LIBRARY.method("kubernetes.Semver.major(): int", lambda version: version.numbers[0])
LIBRARY.method("kubernetes.Semver.minor(): int", lambda version: version.numbers[1])
LIBRARY.method("kubernetes.Semver.patch(): int", lambda version: version.numbers[2])
