"""String formats and patterns that a schema may name.

Formats accept the same strings as kube-openapi's. Unknown formats are ignored, as upstream ignores them. Names are
compared without dashes: `date-time` is `datetime`. All checks take time linear in the length of the text.

A `pattern` is compiled once. Each match calls C code and copies the text, so results for short texts are cached, with a
limit per pattern.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from unicodedata import category

from remuda.kube.patterns import compile_pattern

FormatCheck = Callable[[str], bool]


def string_format(name: str) -> FormatCheck | None:
    """Return the check of a string format, or None if the format is unknown and therefore not enforced."""
    return _CHECKS.get(name.replace("-", ""))


def _fullmatch(pattern: str, flags: int = re.ASCII) -> FormatCheck:
    match = re.compile(pattern, flags).fullmatch
    return lambda text: match(text) is not None


_is_date_shape = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch
_is_time_of_day = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))").fullmatch


def is_date(text: str) -> bool:
    parts = _is_date_shape(text)
    if parts is None:
        return False
    year, month, day = (int(part) for part in parts.groups())
    try:
        date(year or 4, month, day)  # Go accepts the year 0; like year 4, it is a leap year
    except ValueError:
        return False
    return True


# Fast path for the most common form, 2006-01-02T15:04:05Z, and dates that are valid without a look at the calendar.
is_plain_utc = re.compile(
    r"[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"
).fullmatch


def is_date_time(text: str) -> bool:
    if is_plain_utc(text):
        return True
    day, *rest = text.lower().split("t")
    if not rest or not is_date(day):
        return False
    parts = _is_time_of_day(rest[0])
    return parts is not None and parts[1] <= "23" and parts[2] <= "59" and parts[3] <= "59"


_is_go_duration = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)").fullmatch
_scala_durations = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)").finditer
_WHOLE_UNITS = {"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"}
_UNIT_STEMS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_INT64 = 1 << 63


def is_duration(text: str) -> bool:
    """Return whether the text is a Go duration (1h30m) or an amount with a spelled unit (2 days)."""
    if _is_go_duration(text):
        return True
    understood = False
    for found in _scala_durations(text):
        if len(found[1]) > 19 or int(found[1]) >= _INT64:
            return False
        unit = found[2].lower()
        understood = understood or unit in _WHOLE_UNITS or unit.startswith(_UNIT_STEMS)
    return understood


def _is_sloppy_ipv4(text: str) -> bool:
    """Return whether the text is an IPv4 address. Leading zeros are valid, as before Go 1.17."""
    parts = text.split(".")
    return len(parts) == 4 and all(p.isascii() and p.isdigit() and int(p[-9:]) <= 255 and len(p) < 9 for p in parts)


def _is_ipv6_text(text: str) -> bool:
    if "%" in text or len(text) > 64:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_ipv4(text: str) -> bool:
    return "." in text and (_is_sloppy_ipv4(text) or _is_ipv6_text(text))


def is_ipv6(text: str) -> bool:
    return ":" in text and _is_ipv6_text(text)


def is_cidr(text: str) -> bool:
    address, slash, size = text.partition("/")
    if not slash or not size.isascii() or not size.isdigit() or len(size) > 8:
        return False
    if ":" in address:
        return _is_ipv6_text(address) and int(size) <= 128
    return _is_sloppy_ipv4(address) and int(size) <= 32


_is_octets = re.compile(r"[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2})(?:\1[0-9a-fA-F]{2})*").fullmatch
_is_quads = re.compile(r"[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4})+").fullmatch


def is_mac(text: str) -> bool:
    if len(text) in (17, 23, 59):
        return _is_octets(text) is not None
    return len(text) in (14, 19, 49) and _is_quads(text) is not None


# Upstream's pattern allows every letter and symbol of Unicode. Such a pattern would compile to megabytes of tables at
# every start. So each such character is replaced by an ASCII character of its class before matching.
_NAME = r"[a-zA-Z0-9$+<=>^`|~]"
_is_hostname_shape = re.compile(
    rf"{_NAME}(?:-?{_NAME}{{0,62}})?|(?:{_NAME}(?:(?:{_NAME}|-){{0,61}}{_NAME})?\.)+[a-zA-Z]{{2,63}}"
).fullmatch
_STAND_INS = {"L": "a", "S": "+"}


def _with_stand_ins(text: str) -> str:
    return "".join(c if c.isascii() else _STAND_INS.get(category(c)[0], " ") for c in text)


def is_hostname(text: str) -> bool:
    if len(text) > 255 or len(text.encode()) > 255:
        return False
    if not _is_hostname_shape(text if text.isascii() else _with_stand_ins(text)):
        return False
    return all(len(label.encode()) <= 63 for label in text.split("."))


_control = re.compile(r"[\x00-\x1f\x7f]").search
_scheme = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:").match
_bad_escape = re.compile(r"%(?![0-9a-fA-F]{2})").search
_is_user_info = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*").fullmatch
_is_host = re.compile(r"""(?:[A-Za-z0-9\-._~!$&'()*+,;=:<>"]++|[^\x00-\x7f]++|%[89a-fA-F][0-9a-fA-F])*+""").fullmatch
_is_bracketed_host = re.compile(r"\[[^\]\s]*\](?::[0-9]*)?").fullmatch


def is_request_uri(text: str) -> bool:
    """Return whether the text is an absolute URI or an absolute path."""
    if not text or _control(text):
        return False
    if text == "*":
        return True
    scheme = _scheme(text)
    rest = text[scheme.end() :] if scheme else text
    if not rest.startswith("/"):
        return scheme is not None
    path = rest.partition("?")[0]
    if scheme and rest.startswith("//") and not rest.startswith("///"):
        authority, _, path = path[2:].partition("/")
        if not _is_authority(authority):
            return False
    return _bad_escape(path) is None


def _is_authority(authority: str) -> bool:
    user, at, host = authority.rpartition("@")
    if at and (_is_user_info(user) is None or _bad_escape(user)):
        return False
    if host.startswith("["):
        return _is_bracketed_host(host) is not None
    _, colon, port = host.rpartition(":")
    if colon and port and not (port.isascii() and port.isdigit()):
        return False
    return _is_host(host) is not None


_ATOM = r'[^\x00-\x20"(),.:;<>@\[\\\]\x7f]+'
_QUOTED = r'"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\x20-\x7e\t])*"'
_ADDRESS = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@(?:{_ATOM}(?:\.{_ATOM})*|\[[^\[\]\\\s]+\])"
_DISPLAY_NAME = rf"(?:[^<>()\[\],;:\\@\"\x00-\x08\x0a-\x1f\x7f]|{_QUOTED})*"
_is_email = re.compile(rf"\s*(?:{_ADDRESS}|{_DISPLAY_NAME}<{_ADDRESS}>)\s*").fullmatch
_EMAIL_LIMIT = 2048  # longer texts are no addresses


def is_email(text: str) -> bool:
    return len(text) <= _EMAIL_LIMIT and "@" in text and _is_email(text) is not None


_not_digits = re.compile(r"[^0-9]+")
_is_card_number = re.compile(
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})"
).fullmatch


def is_credit_card(text: str) -> bool:
    digits = _not_digits.sub("", text)
    if _is_card_number(digits) is None:
        return False
    total = 0
    for position, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + position % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


_spaces_and_dashes = re.compile(r"[\s-]+", re.ASCII)
_is_isbn10 = re.compile(r"[0-9]{9}[0-9X]").fullmatch
_is_isbn13 = re.compile(r"[0-9]{13}").fullmatch


def is_isbn10(text: str) -> bool:
    digits = _spaces_and_dashes.sub("", text)
    if _is_isbn10(digits) is None:
        return False
    return sum((i + 1) * (10 if d == "X" else int(d)) for i, d in enumerate(digits)) % 11 == 0


def is_isbn13(text: str) -> bool:
    digits = _spaces_and_dashes.sub("", text)
    if _is_isbn13(digits) is None:
        return False
    return sum(int(d) * (1 + 2 * (i % 2)) for i, d in enumerate(digits)) % 10 == 0


_LONGEST = 1024  # maximum length of a duration or a number, with spaces and dashes; kube-apiserver has no limit
_COLOUR = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_HEX8 = "[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?"
_HEX12 = "-?[0-9a-fA-F]{12}"
_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_is_short_name = re.compile(_SHORT_NAME).fullmatch
_is_long_name = re.compile(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*").fullmatch
_is_base64 = re.compile(r"[A-Za-z0-9+/]+={0,2}").fullmatch


def _short(check: FormatCheck) -> FormatCheck:
    """Reject a text that is far too long for its format: the time of a pattern search grows faster than the length."""
    return lambda text: len(text) <= _LONGEST and check(text)


_is_ssn = _fullmatch(r"\d{3}[- ]?\d{2}[- ]?\d{4}")

_CHECKS: dict[str, FormatCheck] = {
    "bsonobjectid": _fullmatch("[0-9a-fA-F]{24}"),
    "uri": is_request_uri,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "cidr": is_cidr,
    "mac": is_mac,
    "uuid": _fullmatch(f"{_HEX8}[0-9a-fA-F]{{4}}-?[0-9a-fA-F]{{4}}{_HEX12}"),
    "uuid3": _fullmatch(f"{_HEX8}3[0-9a-fA-F]{{3}}-?[0-9a-fA-F]{{4}}{_HEX12}"),
    "uuid4": _fullmatch(f"{_HEX8}4[0-9a-fA-F]{{3}}-?[89abAB][0-9a-fA-F]{{3}}{_HEX12}"),
    "uuid5": _fullmatch(f"{_HEX8}5[0-9a-fA-F]{{3}}-?[89abAB][0-9a-fA-F]{{3}}{_HEX12}"),
    "isbn": _short(lambda text: is_isbn10(text) or is_isbn13(text)),
    "isbn10": _short(is_isbn10),
    "isbn13": _short(is_isbn13),
    "creditcard": _short(is_credit_card),
    "ssn": lambda text: len(text) == 11 and _is_ssn(text),
    "hexcolor": _fullmatch("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _fullmatch(rf"rgb\({_COLOUR},{_COLOUR},{_COLOUR}\)"),
    "byte": lambda text: len(text) % 4 == 0 and _is_base64(text) is not None,
    "password": lambda text: True,
    "date": is_date,
    "duration": _short(is_duration),
    "datetime": is_date_time,
    "k8sshortname": lambda text: len(text) <= 63 and _is_short_name(text) is not None,
    "k8slongname": lambda text: len(text) <= 253 and _is_long_name(text) is not None,
}


_REMEMBERED_LENGTH = 256
_REMEMBERED_COUNT = 512

Matcher = Callable[[str], bool]


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Matcher:
    """Return a function that tests whether a text contains a match. Raises BadPattern."""
    search = compile_pattern(pattern).search
    known: dict[str, bool] = {}
    lookup = known.get

    def matches(text: str) -> bool:
        answer = lookup(text)
        if answer is None:
            answer = search(text) is not None
            if len(text) <= _REMEMBERED_LENGTH:
                if len(known) >= _REMEMBERED_COUNT:
                    known.clear()
                known[text] = answer
        return answer

    return matches
