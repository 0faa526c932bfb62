"""The corpus of the fuzzer, replayed and changed a little: what was found once stays fixed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.campaign import LONGEST, Recorder, TooExpensive, bounded
from tests.fuzz.mutation import corpus_of, mutated
from tests.fuzz.source import Source
from tests.fuzz.targets import NAMES, load

_CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
_MUTATIONS = 50
_LARGEST_CORPUS = 400 * 1024  # bytes


@pytest.mark.parametrize("target", NAMES)
def test_fuzz_corpus_and_mutations_raise_no_error(target: str) -> None:
    check, known, source = load(target), corpus_of(target), random.Random(target)
    assert len(known) > 1, f"{target} has no corpus"
    for data in [*known, *(mutated(source, known, LONGEST) for _ in range(_MUTATIONS))]:
        check(data)


def test_fuzz_corpus_stays_below_size_limit() -> None:
    files = [file for target in NAMES for file in (_CORPUS / target).iterdir()]
    assert sum(file.stat().st_size for file in files) < _LARGEST_CORPUS


def test_fuzz_source_accepts_any_bytes() -> None:
    for data in (b"", b"\xff" * 300, bytes(range(256))):
        source = Source(data)
        assert isinstance(source.object(("a", "b")), dict)
        source.json()
        assert len(source.text()) <= 24
        assert source.rest() == b"" or data


def test_fuzz_recorder_saves_one_crash_per_location(tmp_path: Path) -> None:
    def broken(data: bytes) -> None:
        if data:
            raise ValueError(data)

    recorder = Recorder("broken", broken, tmp_path)
    for data in (b"", b"a", b"b"):
        recorder(data)
    assert [file.read_bytes() for file in (tmp_path / "broken").iterdir()] == [b"a"]


def test_fuzz_input_exceeding_cpu_limit_raises_too_expensive() -> None:
    with pytest.raises(TooExpensive, match="processor time"):
        bounded(lambda data: None, seconds=-1.0)(b"")
