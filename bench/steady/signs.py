"""What is another one in each cluster, found wherever it stands in a text: also inside of what is packed in it.

Certificates and keys are left as they are.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_PEM = r"-----BEGIN [^-]+-----[^-]*-----END [^-]+-----"
_ENCODED = r"[A-Za-z0-9+/]{16,}={0,2}"
_GZIP = b"\x1f\x8b"


class Sign(NamedTuple):
    text: str


class Packed(NamedTuple):
    """Text within text, in base64."""

    parts: Sequence[Part]
    gzipped: bool


Part = str | Sign | Packed


class Signs:
    def __init__(self, signs: Iterable[str]) -> None:
        ordered = sorted(signs, key=len, reverse=True)  # one may begin as another does
        self._longest = len(ordered[0])
        known = "|".join(map(re.escape, ordered))
        self._alone = re.compile(known)
        self._any = re.compile(f"(?P<pem>{_PEM})|(?P<encoded>{_ENCODED})|{known}")

    def find(self, text: str) -> list[Part]:
        parts: list[Part] = []
        kept = at = 0
        while match := self._any.search(text, at):
            part, begin, at = self._part(text, match)
            if part is not None:
                parts += [text[kept:begin], part]
                kept = at
        return [*parts, text[kept:]]

    def _part(self, text: str, match: re.Match[str]) -> tuple[Part | None, int, int]:
        """With where it begins and ends."""
        if match["pem"]:
            return None, *match.span()
        if not match["encoded"]:
            return Sign(match[0]), *match.span()
        if (packed := self._packed(match[0])) is not None:
            return packed, *match.span()
        plain = self._alone.search(text, match.start(), match.end() + self._longest)  # a path looks encoded, too
        if plain is not None and plain.start() < match.end():
            return Sign(plain[0]), *plain.span()
        return None, *match.span()

    def _packed(self, text: str) -> Packed | None:
        """None: there is no sign in it, or it is not text that was encoded."""
        try:
            content = base64.b64decode(text, validate=True)
            gzipped = content.startswith(_GZIP)
            parts = self.find((gzip.decompress(content) if gzipped else content).decode())
        except (ValueError, OSError, EOFError):
            return None
        return Packed(parts, gzipped) if len(parts) > 1 else None


def put(parts: Sequence[Part], signs: Mapping[str, str]) -> str:
    """The text with other signs."""
    return "".join(
        part if isinstance(part, str) else signs[part.text] if isinstance(part, Sign) else _pack(part, signs)
        for part in parts
    )


def _pack(packed: Packed, signs: Mapping[str, str]) -> str:
    content = put(packed.parts, signs).encode()
    return base64.b64encode(gzip.compress(content, mtime=0) if packed.gzipped else content).decode()
