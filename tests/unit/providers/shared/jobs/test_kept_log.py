"""Kept logs of Jobs: bounded, and readable whatever is in the Secret."""

from __future__ import annotations

import gzip

from remuda.providers.shared.jobs import kept_log
from remuda.providers.shared.jobs.kept_log import MOST_BYTES, LogTail


def text(*lines: str) -> str:
    log = LogTail()
    for line in lines:
        log.add(line)
    return kept_log.unpacked(log.packed())


def test_short_log_is_kept_whole() -> None:
    assert text("a\nb", "", "c") == "a\nb\nc\n"


def test_long_log_keeps_its_end() -> None:
    found = text(*(f"line {number}" for number in range(MOST_BYTES)))
    assert found.splitlines()[0] == "… the beginning of this log was not kept"
    assert found.endswith(f"line {MOST_BYTES - 1}\n")
    assert len(found) < MOST_BYTES + 100
    assert len(text("x" * 10 * MOST_BYTES)) < MOST_BYTES + 100


def test_invalid_log_is_empty_and_huge_one_is_cut() -> None:
    assert kept_log.in_secret({kept_log.CREATE_LOG: b"no gzip"}) == ""
    assert len(kept_log.unpacked(gzip.compress(b"x" * 100 * MOST_BYTES))) == 8 * MOST_BYTES
