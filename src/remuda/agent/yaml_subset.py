"""Parser of the YAML subset of kubeconfigs, registries.yaml and config.yaml, with the standard library alone.

JSON is read as JSON. Otherwise: mappings and lists, in block or flow style; plain and quoted text; `|` and `>`;
comments; one document. Ambiguous YAML is rejected with its line: anchors, aliases, tags, complex keys, tabs as
indentation, duplicate keys, and unquoted text over several lines. A number with a leading zero (`0644`) stays text,
because YAML parsers disagree about it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DEEPEST = 60
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)$")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")
_HEADER = re.compile(r"([|>])([-+]?)([1-9]?)([-+]?)[ \t]*(?:#.*)?$")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_HEX = {"x": 2, "u": 4, "U": 8}


class YamlError(ValueError):
    """Text outside the subset. The message says where and why, and quotes nothing of the document, which may be a
    secret.
    """


def load(text: str) -> Any:
    """Return the document as dicts, lists, strings, numbers, booleans and None."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except RecursionError:
            raise YamlError("line 1: nested too deeply") from None
        except ValueError:
            pass  # then it is YAML in flow style
    return _Reader(text).document()


class _Reader:
    """Parser over lines; `at` is the next one."""

    def __init__(self, text: str) -> None:
        self.lines = text.replace("\r\n", "\n").lstrip("\ufeff").split("\n")
        self.at = 0

    def wrong(self, why: str, at: int | None = None) -> YamlError:
        return YamlError(f"line {(self.at if at is None else at) + 1}: {why}")

    def document(self) -> Any:
        seen = self.peek()
        while seen is not None and self.lines[self.at].startswith("%"):
            self.at += 1
            seen = self.peek()
        if seen is not None and re.match(r"---(?:[ \t]|$)", self.lines[self.at]):
            self.lines[self.at] = "   " + self.lines[self.at][3:]
            seen = self.peek()
        if seen is None:
            return None
        value = self.block(seen[0], 0)
        if self.peek() is not None:
            raise self.wrong("more than one document, or a line with a wrong indentation")
        return value

    def peek(self) -> tuple[int, str] | None:
        """Return indentation and content of the next line that is not empty or a comment."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            content = line.lstrip(" ")
            if content.startswith("\t") and content.strip(" \t"):
                raise self.wrong("a tab as indentation")
            if re.match(r"\.\.\.(?:[ \t]|$)", line):
                self.lines = self.lines[: self.at]
                return None
            if content.strip(" \t") and not content.startswith("#"):
                return len(line) - len(content), content.rstrip(" \t")
            self.at += 1
        return None

    def block(self, indent: int, depth: int) -> Any:
        """Parse the value that begins on the next line, which has this indentation."""
        if depth > _DEEPEST:
            raise self.wrong("nested too deeply")
        seen = self.peek()
        assert seen is not None
        if _is_item(seen[1]):
            return self.sequence(indent, depth)
        if self.key(seen[1]) is not None:
            return self.mapping(indent, depth)
        return self.value(indent, seen[1], indent - 1, depth)

    def sequence(self, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        while True:
            seen = self.peek()
            if seen is None or seen[0] < indent or (seen[0] == indent and not _is_item(seen[1])):
                return items
            if seen[0] > indent:
                raise self.wrong("indented deeper than the items of its list")
            rest = seen[1][1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self.at += 1
                items.append(self.nested(indent, depth, lists_too=False))
            elif rest[0] in "|>":
                items.append(self.value(len(seen[1]) - len(rest) + indent, rest, indent, depth))
            else:
                deeper = indent + len(seen[1]) - len(rest)
                self.lines[self.at] = " " * deeper + rest  # "- key: value" is a mapping that begins at the key
                items.append(self.block(deeper, depth + 1))

    def mapping(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            seen = self.peek()
            if seen is None or seen[0] < indent:
                return found
            if seen[0] > indent:
                raise self.wrong("indented deeper than the keys beside it")
            key = self.key(seen[1])
            if key is None:
                raise self.wrong("neither a key with a colon nor an item of a list")
            name, rest = key
            if name in found:
                raise self.wrong("a duplicate key")
            if rest and not rest.startswith("#"):
                found[name] = self.value(indent + len(seen[1]) - len(rest), rest, indent, depth)
            else:
                self.at += 1
                found[name] = self.nested(indent, depth, lists_too=True)

    def nested(self, indent: int, depth: int, *, lists_too: bool) -> Any:
        """Parse the block below a key or an item without a value on its line. A list may have the indent of its key."""
        seen = self.peek()
        if seen is not None and (seen[0] > indent or (lists_too and seen[0] == indent and _is_item(seen[1]))):
            return self.block(seen[0], depth + 1)
        return None

    def key(self, content: str) -> tuple[str, str] | None:
        """Return the key at the start of a line and the text after its colon; None if there is no key."""
        if content[0] in "\"'":
            try:
                quoted = _quoted(content, 0)
            except YamlError as error:
                raise self.wrong(str(error)) from None
            if quoted is None or not re.match(r"[ \t]*:(?:[ \t]|$)", content[quoted[1] :]):
                return None
            return quoted[0], content[quoted[1] :].lstrip(" \t")[1:].lstrip(" \t")
        if content[0] in "{[":
            return None
        if content[0] in "&*!%@`|>" or content.startswith("? "):
            if content[0] in "|>":
                return None
            raise self.wrong(f"begins with {content[0]}: anchors, aliases, tags and complex keys are not supported")
        plain = re.match(r"((?:[^:#]|:(?=[^ \t\n])|(?<=[^ \t\n])#)+?)[ \t]*:(?:[ \t]+|$)", content)
        return (plain[1], content[plain.end() :]) if plain else None

    def value(self, column: int, content: str, parent: int, depth: int) -> Any:
        """Parse a value that stands on this line from this column on, or begins there and continues below."""
        if content[0] in "|>":
            return self.text_block(content, parent)
        if content[0] in "{[\"'":
            scanner = _Scanner(self, column)
            found = scanner.value(depth)
            scanner.done()
            return found
        if content[0] in "&*!%@`,]}":
            raise self.wrong(f"begins with {content[0]}: anchors, aliases and tags are not supported")
        plain = re.split(r"[ \t]#", content, maxsplit=1)[0].rstrip(" \t")
        if re.search(r":(?:[ \t]|$)", plain) or plain.startswith("- "):
            raise self.wrong("a key or an item in the middle of a line")
        self.at += 1
        seen = self.peek()
        if seen is not None and seen[0] > parent:
            raise self.wrong("text without quotes that goes on in the next line")
        return _plain(plain)

    def text_block(self, header: str, parent: int) -> str:
        parts = _HEADER.match(header)
        if parts is None:
            raise self.wrong("unexpected text after | or >")
        self.at += 1
        start, keep = self.at, parts[2] or parts[4]
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip(" ") and len(line) - len(line.lstrip(" ")) <= parent:
                break
            self.at += 1
        body = self.lines[start : self.at]
        filled = [line for line in body if line.strip(" ")]
        indent = parent + int(parts[3]) if parts[3] and parent >= 0 else int(parts[3] or 0)
        if not indent and filled:
            indent = len(filled[0]) - len(filled[0].lstrip(" "))
        if any(line[:indent].strip(" ") for line in filled):
            raise self.wrong("a line of a block of text indented less than its first", start)
        rows = [line[indent:] for line in body]
        if self.at == len(self.lines) and rows and rows[-1] == "":
            rows.pop()  # the text after the last line break of the file is no line
        empty = 0
        while rows and not rows[-1]:
            rows.pop()
            empty += 1
        text = _folded(rows) if parts[1] == ">" else "\n".join(rows)
        if keep == "-" or not rows:
            return text if keep != "+" else "\n" * empty
        return text + "\n" + ("\n" * empty if keep == "+" else "")


class _Scanner:
    """Scanner of flow style and quotes, which may continue over several lines."""

    def __init__(self, reader: _Reader, column: int) -> None:
        self.reader = reader
        self.first = reader.at
        self.text = "\n".join([reader.lines[reader.at][column:], *reader.lines[reader.at + 1 :]])
        self.at = 0

    def wrong(self, why: str) -> YamlError:
        return self.reader.wrong(why, self.first + self.text.count("\n", 0, self.at))

    def done(self) -> None:
        """Require that only a comment follows on the line where the value ends."""
        end = self.text.find("\n", self.at)
        rest = self.text[self.at : end if end >= 0 else len(self.text)]
        if rest.strip(" \t") and not re.match(r"[ \t]+#", rest):
            raise self.wrong("unexpected text after a value")
        self.reader.at = self.first + self.text.count("\n", 0, self.at) + 1

    def space(self) -> str:
        while True:
            found = re.compile(r"[ \t\n]*(?:(?<=[ \t\n])#[^\n]*)?").match(self.text, self.at)
            if found is None or found.end() == self.at:
                break
            self.at = found.end()
        if self.at >= len(self.text):
            raise self.wrong("ends within braces or quotes")
        return self.text[self.at]

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self.wrong("nested too deeply")
        sign = self.text[self.at]
        if sign == "{":
            return self.mapping(depth)
        if sign == "[":
            return self.sequence(depth)
        if sign in "\"'":
            return self.quoted()
        return _plain(self.plain())

    def quoted(self) -> str:
        try:
            found = _quoted(self.text, self.at)
        except YamlError as error:
            raise self.wrong(str(error)) from None
        if found is None:
            raise self.wrong("ends within quotes")
        self.at = found[1]
        return found[0]

    def plain(self) -> str:
        found = re.compile(r"(?:[^,\[\]{}:#\n]|:(?![ \t\n,\[\]{}])|(?<=[^ \t\n])#)*").match(self.text, self.at)
        assert found is not None
        word = found[0].strip(" \t")
        if word[:1] in ("&", "*", "!", "|", ">", "%", "@", "`") or word == "?" or word.startswith("? "):
            raise self.wrong(f"begins with {word[0]}: anchors, aliases and tags are not supported")
        self.at = found.end()
        return word

    def sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.at += 1
        while self.space() != "]":
            before = self.at
            items.append(self.value(depth + 1))
            if self.at == before or self.space() not in ",]":
                raise self.wrong("a comma or ] is missing")
            self.at += self.text[self.at] == ","
        self.at += 1
        return items

    def mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while self.space() != "}":
            name = self.quoted() if self.text[self.at] in "\"'" else self.plain()
            if name in found:
                raise self.wrong("a duplicate key")
            if self.space() != ":":
                raise self.wrong("a key without a colon")
            self.at += 1
            found[name] = self.value(depth + 1) if self.space() not in ",}" else None
            if self.space() not in ",}":
                raise self.wrong("a comma or } is missing")
            self.at += self.text[self.at] == ","
        self.at += 1
        return found


def _is_item(content: str) -> bool:
    return content == "-" or content.startswith("- ")


def _plain(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.match(word):
        return int(word)
    return float(word) if _FLOAT.match(word) else word


def _folded(rows: list[str]) -> str:
    """Fold lines: line breaks become spaces, empty lines become line breaks; indented lines keep their breaks."""
    text, empty = rows[0] if rows else "", 0
    before = text
    for row in rows[1:]:
        if not row:
            empty += 1
            continue
        if before[:1] in (" ", "\t") or row[:1] in (" ", "\t") or not text:
            text += "\n" * (empty + 1)
        else:
            text += "\n" * empty if empty else " "
        text += row
        before, empty = row, 0
    return text


def _quoted(text: str, start: int) -> tuple[str, int] | None:
    """Return the quoted text that begins there, and its end; None if it does not end."""
    if text[start] == "'":
        found = re.compile(r"'((?:[^']|'')*)'").match(text, start)
        return (_joined(found[1].replace("''", "'")), found.end()) if found else None
    found = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match(text, start)
    return (_unescaped(found[1]), found.end()) if found else None


def _joined(text: str) -> str:
    """Join quoted text over several lines: one line break is a space, each further one a line break."""
    return re.sub(r"[ \t]*\n((?:[ \t]*\n)*)[ \t]*", lambda found: "\n" * found[1].count("\n") or " ", text)


def _unescaped(text: str) -> str:
    pieces = []
    for part in re.split(r"(\\(?:\n[ \t]*|x.{2}|u.{4}|U.{8}|.))", text, flags=re.DOTALL):
        if not part.startswith("\\"):
            pieces.append(_joined(part))
        elif part[1] == "\n":
            pass  # an escaped line break joins two lines
        elif part[1] in _HEX:
            try:
                pieces.append(chr(int(part[2:], 16)))
            except (ValueError, OverflowError):
                raise YamlError("a wrong escape within quotes") from None
        elif part[1] in _ESCAPES:
            pieces.append(_ESCAPES[part[1]])
        else:
            raise YamlError("an unknown escape within quotes")
    # JSON escapes characters outside the Basic Multilingual Plane as a pair of surrogates.
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
