"""Fuzz all targets, one after the other, and print a summary.

python -m tests.fuzz --inputs 1000000                  all targets, with equal shares
python -m tests.fuzz --inputs 5000 --target cel        one of them
python -m tests.fuzz --replay .fuzz-crashes/cel/0123…  one saved input
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.campaign import bounded, has_atheris
from tests.fuzz.targets import NAMES, load

_MOST_GROWTH = 512.0  # megabytes of one campaign; Atheris itself keeps every input that was worth it
_PROGRESS_SECONDS = 10.0
_LAST_LINES = 40
_COUNT = re.compile(r"#(\d+)\b")
_NOISE = re.compile(r"(INFO|WARNING|###|stat::|Done \d|\".*# Uses)")  # of libFuzzer


class Outcome(NamedTuple):
    target: str
    inputs: int
    crashes: int
    grown: float  # megabytes
    added: int  # inputs that reach code that no other reached
    ended: str  # why it ended early

    @property
    def is_well(self) -> bool:
        return not self.crashes and not self.ended and self.grown <= _MOST_GROWTH


def run(target: str, inputs: int, seed: int, crashes: Path, found: Path) -> Outcome:
    """Run one campaign and print its progress."""
    known = _files(crashes / target)
    found.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.campaign", target, "--inputs", str(inputs), "--seed", str(seed)]
    command += ["--crashes", str(crashes), "--found", str(found)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    stats: dict[str, float] = {}
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env=environment
    ) as child:
        try:
            shown = time.monotonic()
            for line in child.stderr or ():
                name, _, value = line.removeprefix("stat::").partition(": ")
                if value.strip().isdigit():
                    stats[name] = float(value)
                count = _COUNT.match(line)
                if not count:
                    if not _NOISE.match(line):
                        last.append(line)
                elif time.monotonic() - shown > _PROGRESS_SECONDS:
                    shown = time.monotonic()
                    print(f"  {target}: {int(count[1]):,} of {inputs:,} inputs", flush=True)
        except BaseException:
            child.kill()
            raise
    new = sorted(_files(crashes / target) - known)
    if new or child.returncode:
        print("".join(last))
    for file in new:
        print(f"  {target}: saved {file}; replay it: PYTHONPATH=src {sys.executable} -m tests.fuzz --replay {file}")
    return Outcome(
        target=target,
        inputs=int(stats.get("number_of_executed_units", 0)),
        crashes=len(new),
        grown=stats.get("peak_rss_mb", 0.0) - stats.get("size", 0.0),
        added=int(stats.get("new_units_added", 0)),
        ended=f"exit code {child.returncode}" if child.returncode else "",
    )


def _files(folder: Path) -> set[Path]:
    return set(folder.glob("*"))


def _remove_empty(folder: Path) -> None:
    """Remove the folder and those in it that have no files."""
    for one in (*folder.glob("*"), folder):
        try:
            one.rmdir()
        except OSError:  # it has files, or is one, or is not there
            pass


def summary(outcomes: list[Outcome]) -> str:
    lines = [f"{'target':14} {'inputs':>10} {'crashes':>8} {'memory':>9} {'corpus':>8}"]
    for one in outcomes:
        lines.append(
            f"{one.target:14} {one.inputs:>10,} {one.crashes:>8} {one.grown:>+6.0f} MB {one.added:>+8,} {one.ended}"
        )
    total = sum(one.inputs for one in outcomes)
    worst = max((one.grown for one in outcomes), default=0.0)
    crashes = sum(one.crashes for one in outcomes)
    lines.append(f"{total:,} inputs, {crashes} crashes, largest memory growth {worst:+.0f} MB")
    return "\n".join(line.rstrip() for line in lines)


def replay(file: Path) -> None:
    """Run one saved input; its folder is named after its target."""
    bounded(load(file.absolute().parent.name))(file.read_bytes())
    print(f"{file}: nothing is wrong")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers of untrusted input.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="Inputs of all targets together")
    parser.add_argument("--target", action="append", choices=NAMES, help="Fuzz only this target; may be repeated")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 2**31), help="Repeat a run")
    parser.add_argument("--crashes", type=Path, default=Path(".fuzz-crashes"), help="Folder for inputs that fail")
    parser.add_argument("--keep", type=Path, help="Folder for inputs that reach new code")
    parser.add_argument("--replay", type=Path, help="Run this saved input and nothing else")
    given = parser.parse_args()
    if given.replay:
        replay(given.replay)
        return 0
    if not has_atheris():
        print("Atheris is not installed: inputs of the corpus are changed at random, without the help of coverage")
    targets = given.target or NAMES
    print(f"seed {given.seed}", flush=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="remuda-fuzz-") as temporary:
        try:
            for target in targets:
                found = (given.keep or Path(temporary)) / target
                outcomes.append(run(target, -(-given.inputs // len(targets)), given.seed, given.crashes, found))
        except KeyboardInterrupt:
            print("interrupted")
    _remove_empty(given.crashes)
    print(summary(outcomes))
    return 0 if len(outcomes) == len(targets) and all(one.is_well for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
