"""Methods of strings, and `join` for lists of strings. Positions count code points."""

from __future__ import annotations

import re
from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.library.format import format_string
from remuda.apiserver.cel.values import CelError, size_of, type_name

LIBRARY = Library()


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, wanted: str, start: int = 0) -> int:
    if not wanted:
        return start
    if start < 0:
        raise _out_of_range(start)
    return text.find(wanted, start)


def _last_index_of(text: str, wanted: str) -> int:
    if not wanted:
        return len(text)
    return text.rfind(wanted)


def _last_index_before(text: str, wanted: str, start: int) -> int:
    if not wanted:
        return start
    if start < 0:
        raise _out_of_range(start)
    return -1 if start >= len(text) else text.rfind(wanted, 0, start + len(wanted))


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code + 32: code for code in _LOWER}


def _lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


def _upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


def _replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new)


def _replace_some(text: str, old: str, new: str, count: int) -> str:
    return text.replace(old, new, max(count, -1))


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _split_some(text: str, separator: str, count: int) -> list[str]:
    if count == 0:
        return []
    if count < 0:
        return _split(text, separator)
    if separator:
        return text.split(separator, count - 1)
    return list(text) if count >= len(text) else [*text[: count - 1], text[count - 1 :]]


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _trim(text: str) -> str:
    return text.strip(_SPACE)


def _join(items: list[Any], separator: str = "") -> str:
    for item in items:
        if type(item) is not str:
            raise CelError(f"join: invalid input: {item} of type {type_name(item)}")
    return separator.join(items)


def _cost_of_join(args: tuple[Any, ...], result: Any) -> int:
    return cost.of_first_twice((result,), None)


_QUOTED = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_QUOTED |= {"\\": "\\\\", '"': '\\"'}
_TO_QUOTE = re.compile(r'[\a\b\f\n\r\t\v\\"]')


def _quote(text: str) -> str:
    return '"' + _TO_QUOTE.sub(lambda match: _QUOTED[match.group()], text) + '"'


def _contains(text: str, wanted: str) -> bool:
    return wanted in text


def _cost_of_format(args: tuple[Any, ...], result: Any) -> int:
    return cost.tenth(size_of(args[0]))


LIBRARY.method("string.contains(string): bool", _contains, id="contains_string", cost=cost.of_search)
LIBRARY.method("string.startsWith(string): bool", str.startswith, id="starts_with_string", cost=cost.of_first)
LIBRARY.method("string.endsWith(string): bool", str.endswith, id="ends_with_string", cost=cost.of_first)
LIBRARY.method("string.charAt(int): string", _char_at)
LIBRARY.method("string.indexOf(string): int", _index_of, cost=cost.of_traversal)
LIBRARY.method("string.indexOf(string, int): int", _index_of, cost=cost.of_traversal)
LIBRARY.method("string.lastIndexOf(string): int", _last_index_of, cost=cost.of_traversal)
LIBRARY.method("string.lastIndexOf(string, int): int", _last_index_before, cost=cost.of_traversal)
LIBRARY.method("string.lowerAscii(): string", _lower_ascii, cost=cost.of_first)
LIBRARY.method("string.upperAscii(): string", _upper_ascii, cost=cost.of_first)
LIBRARY.method("string.replace(string, string): string", _replace, cost=cost.of_first_twice)
LIBRARY.method("string.replace(string, string, int): string", _replace_some, cost=cost.of_first_twice)
LIBRARY.method("string.split(string): list(string)", _split, cost=cost.of_first_twice)
LIBRARY.method("string.split(string, int): list(string)", _split_some, cost=cost.of_first_twice)
LIBRARY.method("string.substring(int): string", _substring, cost=cost.of_first)
LIBRARY.method("string.substring(int, int): string", _substring_range, cost=cost.of_first)
LIBRARY.method("string.trim(): string", _trim, cost=cost.of_first)
LIBRARY.method("string.format(list(dyn)): string", format_string, id="string_format", cost=_cost_of_format)
LIBRARY.function("strings.quote(string): string", _quote, id="strings_quote", cost=cost.of_first)
LIBRARY.method("list(string).join(): string", _join, cost=_cost_of_join)
LIBRARY.method("list(string).join(string): string", _join, cost=_cost_of_join)
