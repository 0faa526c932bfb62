"""Add to the corpus what a campaign has found, as far as it reaches code that the corpus does not reach.

    python -m tests.fuzz --inputs 1000000 --keep found
    python -m tests.fuzz.minimize found

Two inputs reach the same code if they take the same steps from line to line in our modules. Short inputs come first, so
that they stand for longer ones.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.campaign import corpus_folder
from tests.fuzz.mutation import corpus_of
from tests.fuzz.targets import NAMES, Check, load

_OURS = f"{Path('src', 'remuda')}/"
_LONGEST = 1024  # bytes; longer ones are seldom worth their place

Step = tuple[str, int, int]


def steps(check: Check, data: bytes) -> set[Step]:
    """Return the steps from line to line that an input takes in our modules."""
    found: set[Step] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if _OURS not in name:
            return None
        before = 0

        def walk(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            if event == "line":
                found.add((name, before, frame.f_lineno))
                before = frame.f_lineno
            return walk

        return walk

    sys.settrace(enter)
    try:
        check(data)
    finally:
        sys.settrace(None)
    return found


def minimize(target: str, found: Path) -> int:
    """Copy the inputs that take new steps into the corpus, and return how many."""
    check, known, added = load(target), set[Step](), 0
    for data in corpus_of(target):
        known |= steps(check, data)
    candidates = {file.read_bytes() for file in found.glob("*") if file.stat().st_size <= _LONGEST}
    for data in sorted(candidates, key=lambda one: (len(one), one)):
        taken = steps(check, data)
        if taken <= known:
            continue
        known |= taken
        added += 1
        (corpus_folder(target) / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    return added


def main() -> None:
    parser = argparse.ArgumentParser(description="Add inputs that reach new code to the corpus.")
    parser.add_argument("found", type=Path, help="Folder that --keep has filled")
    given = parser.parse_args()
    for target in NAMES:
        print(f"{target}: {minimize(target, given.found / target)} inputs added", flush=True)


if __name__ == "__main__":
    main()
