"""Named string formats: `format.dns1123Label().validate(self.name)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import ceil
from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.declared import parse_base64
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.library import urls
from remuda.apiserver.cel.times import parse_date, parse_timestamp
from remuda.apiserver.cel.values import NONE, CelError, Opaque, Optional

LIBRARY = Library()

Complaints = list[str]


class NamedFormat(Opaque):
    __slots__ = ("complaints", "name", "regex_size")
    type_name = "kubernetes.NamedFormat"

    def __init__(self, name: str, regex_size: int, complaints: Callable[[str], Complaints]) -> None:
        self.name = name
        self.regex_size = regex_size  # size of the pattern, for the cost of a check
        self.complaints = complaints

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFormat) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_NAME})?"


def _explained(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _sized(pattern: str, limit: int, explanation: str) -> Callable[[str], Complaints]:
    compiled = re.compile(pattern, re.ASCII)

    def complaints(text: str) -> Complaints:
        found = [f"must be no more than {limit} characters"] if len(text.encode()) > limit else []
        # The patterns backtrack little, but a text far beyond the length limit need not be matched at all.
        return found if len(text) <= 4096 and compiled.fullmatch(text) else [*found, explanation]

    return complaints


_subdomain = _sized(
    _SUBDOMAIN,
    253,
    _explained(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character",
        _SUBDOMAIN,
        "example.com",
    ),
)
_label_text = _sized(
    _LABEL,
    63,
    _explained(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character",
        _LABEL,
        "my-name",
        "123-abc",
    ),
)
_label_1035 = _sized(
    _LABEL_1035,
    63,
    _explained(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
        "start with an alphabetic character, and end with an alphanumeric character",
        _LABEL_1035,
        "my-name",
        "abc-123",
    ),
)
_label_value = _sized(
    _LABEL_VALUE,
    63,
    _explained(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character",
        _LABEL_VALUE,
        "MyValue",
        "my_value",
        "12345",
    ),
)
_NAME_EXPLAINED = _explained(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _NAME,
    "MyName",
    "my.name",
    "123-abc",
)
_name_part = _sized(_NAME, 63, _NAME_EXPLAINED)


def _label(text: str) -> Complaints:
    found = _label_text(text)
    if found and not _subdomain(text) and not found[-1].startswith("must be"):
        found[-1] = "must not contain dots"
    return found


def _qualified_name(text: str) -> Complaints:
    parts = text.split("/")
    if len(parts) > 2:
        return [
            "a valid label key "
            + _NAME_EXPLAINED
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found: Complaints = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {complaint}" for complaint in _subdomain(parts[0])]
    if not parts[-1]:
        return [*found, "name part must be non-empty", *(f"name part {c}" for c in _name_part(""))]
    return found + [f"name part {complaint}" for complaint in _name_part(parts[-1])]


def _prefix(check: Callable[[str], Complaints]) -> Callable[[str], Complaints]:
    """Accept a name that will get a suffix: a trailing dash is valid."""
    return lambda text: check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> Complaints:
    try:
        urls.parse(text)
    except ValueError as wrong:
        return [urls.go_error(text, wrong)]
    return []


_UUID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def _uuid(text: str) -> Complaints:
    return [] if _UUID.fullmatch(text) else ["does not match the UUID format"]


def _byte(text: str) -> Complaints:
    try:
        parse_base64(text)
    except CelError:
        return ["invalid base64"]
    return []


def _date(text: str) -> Complaints:
    try:
        parse_date(text)
    except CelError:
        return ["invalid date"]
    return []


def _datetime(text: str) -> Complaints:
    return [] if parse_timestamp(text.upper()) else ["invalid datetime"]


FORMATS = {
    name: NamedFormat(shown, size, complaints)
    for name, shown, size, complaints in (
        ("dns1123Label", "DNS1123Label", 30, _label),
        ("dns1123Subdomain", "DNS1123Subdomain", 60, _subdomain),
        ("dns1035Label", "DNS1035Label", 30, _label_1035),
        ("qualifiedName", "QualifiedName", 60, _qualified_name),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, _prefix(_label)),
        ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, _prefix(_subdomain)),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, _prefix(_label_1035)),
        ("labelValue", "LabelValue", 40, _label_value),
        ("uri", "URI", 1103, _uri),
        ("uuid", "uuid", 71, _uuid),
        ("byte", "byte", 84, _byte),
        ("date", "date", 71, _date),
        ("datetime", "datetime", 71, _datetime),
    )
}


def _validate(named: NamedFormat, text: str) -> Optional:
    complaints = named.complaints(text)
    return Optional(complaints) if complaints else NONE


def _cost_of_validate(args: tuple[Any, ...], result: Any) -> int:
    regex_size: int = args[0].regex_size
    return ceil((1 + len(args[1])) * cost.STRING_FACTOR) * ceil(regex_size * cost.REGEX_FACTOR)


def _named(name: str) -> Optional:
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _constant(named: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: named


LIBRARY.method("kubernetes.NamedFormat.validate(string): optional(list(string))", _validate, cost=_cost_of_validate)
LIBRARY.function("format.named(string): optional(kubernetes.NamedFormat)", _named)
for _name, _format in FORMATS.items():
    LIBRARY.function(f"format.{_name}(): kubernetes.NamedFormat", _constant(_format))
