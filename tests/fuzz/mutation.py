"""Random changes of known inputs, for campaigns and tests without Atheris."""

from __future__ import annotations

import random
from pathlib import Path

_CORPUS = Path(__file__).parent / "corpus"
_EDGES = (b"\x00", b"\xff", b"\x7f", b"\x80", b"{", b"[", b'"', b"\\", b"\n", b"%", b"-1", b"9" * 20, b"[" * 64)


def corpus_of(target: str) -> list[bytes]:
    """Return the known inputs of a target, in a fixed order."""
    return [file.read_bytes() for file in sorted((_CORPUS / target).glob("*"))] or [b""]


def mutated(source: random.Random, known: list[bytes], longest: int) -> bytes:
    """Return one of the known inputs with some changes."""
    data = source.choice(known)
    for _ in range(1 << source.randrange(5)):
        data = _change(source, data, known)
    return data[:longest]


def _change(source: random.Random, data: bytes, known: list[bytes]) -> bytes:
    at, end = sorted((source.randint(0, len(data)), source.randint(0, len(data))))
    end = min(end, at + 16)
    kind = source.randrange(6)
    if kind == 0:
        return data[:at] + bytes([source.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + source.randbytes(source.randrange(1, 9)) + data[at:]
    if kind == 2:
        return data[:at] + data[end:]
    if kind == 3:
        return data[:at] + data[at:end] * source.randrange(2, 5) + data[end:]
    if kind == 4:
        return data[:at] + source.choice(_EDGES) + data[at:]
    return data[:at] + source.choice(known)[at:]
