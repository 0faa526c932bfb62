"""One campaign: many inputs to one target, in a process of its own.

    python -m tests.fuzz.campaign TARGET --inputs N --seed N --crashes FOLDER --found FOLDER

With Atheris (see requirements.txt) code coverage decides which inputs are worth changing further. Without it, inputs of
the corpus are changed at random. Both save each input that breaks the target, and go on.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import random
import resource
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.mutation import corpus_of, mutated
from tests.fuzz.targets import Check, load

LONGEST = 4096  # bytes of an input
_MOST_SECONDS = 5.0  # of processor time for one input: a thousand times what the slowest takes
_MOST_MEGABYTES = 256.0  # that one input may add to the largest size of the process
_MEMORY_LIMIT = 2048  # megabytes of the whole process


class TooExpensive(AssertionError):
    """The input took too much processor time or memory."""


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def bounded(check: Check, seconds: float = _MOST_SECONDS) -> Check:
    """Return the check, which then also fails for an input that costs too much."""

    def checked(data: bytes) -> None:
        used, size = time.process_time(), peak_megabytes()
        check(data)
        used, grown = time.process_time() - used, peak_megabytes() - size
        if used > seconds:
            raise TooExpensive(f"{used:.1f} s of processor time")
        if grown > _MOST_MEGABYTES:
            raise TooExpensive(f"{grown:.0f} MB of memory")

    return checked


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Recorder:
    """Saves each input that breaks the target, one for each place that fails."""

    def __init__(self, target: str, check: Check, crashes: Path) -> None:
        self._target = target
        self._check = bounded(check)
        self._crashes = crashes
        self._places: set[object] = set()

    def __call__(self, data: bytes) -> None:
        try:
            self._check(data)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = type(error), frames[-1].filename, frames[-1].lineno
            if place in self._places:
                return
            self._places.add(place)
            file = self._crashes / self._target / hashlib.sha256(data).hexdigest()[:16]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            print("".join(traceback.format_exception(error)), file=sys.stderr)
            print(f"crash: {file}", file=sys.stderr, flush=True)


def _run_atheris(target: str, inputs: int, seed: int, crashes: Path, found: Path) -> None:
    import atheris

    # Its messages name each module that it instruments.
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["remuda"]):
        check = load(target)
    recorder = Recorder(target, check, crashes)
    hard = crashes / target
    hard.mkdir(parents=True, exist_ok=True)
    flags = [
        *(f"-runs={inputs}", f"-max_len={LONGEST}", f"-seed={seed}", "-print_final_stats=1"),
        # Its time limit counts the clock of a busy machine; ours counts processor time.
        *(f"-rss_limit_mb={_MEMORY_LIMIT}", "-timeout=3000", f"-artifact_prefix={hard}/"),
    ]
    print(f"size: {peak_megabytes():.0f}", file=sys.stderr, flush=True)
    atheris.Setup([sys.argv[0], *flags, str(found), str(corpus_folder(target))], recorder)
    atheris.Fuzz()


def corpus_folder(target: str) -> Path:
    return Path(__file__).parent / "corpus" / target


def _run_mutations(target: str, inputs: int, seed: int, crashes: Path) -> None:
    recorder = Recorder(target, load(target), crashes)
    print(f"size: {peak_megabytes():.0f}", file=sys.stderr, flush=True)
    source, known = random.Random(seed), corpus_of(target)
    for count in range(inputs):
        recorder(known[count] if count < len(known) else mutated(source, known, LONGEST))
        if not count % 1000:
            print(f"#{count}", file=sys.stderr, flush=True)
    print(f"stat::number_of_executed_units: {inputs}\nstat::peak_rss_mb: {peak_megabytes():.0f}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one fuzzing campaign.")
    parser.add_argument("target")
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--crashes", type=Path, required=True)
    parser.add_argument("--found", type=Path, required=True)
    given = parser.parse_args()
    if has_atheris():
        _run_atheris(given.target, given.inputs, given.seed, given.crashes, given.found)
    else:
        _run_mutations(given.target, given.inputs, given.seed, given.crashes)


if __name__ == "__main__":
    main()
