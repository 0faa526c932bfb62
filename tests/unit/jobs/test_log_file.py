"""A log of bounded size: its beginning and its end stay, and readers notice what has gone."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from remuda.jobs import log_file
from remuda.jobs.log_file import LogReader, LogWriter
from remuda.jobs.pod_log import Query, _Shown, last_lines

TIME = log_file.stamp(1_767_268_800.25)


def written(directory: Path, *pieces: bytes, **limits: int) -> LogReader:
    writer = LogWriter(directory, **limits)
    for piece in pieces:
        writer.write(piece, TIME)
    writer.end(TIME)
    return LogReader(directory)


def text(reader: LogReader, position: int = 0) -> bytes:
    shown = _Shown(Query())
    found = b""
    while True:
        data, after = reader.read(position)
        if after == position:
            return found
        found, position = found + shown.of(data), after


def test_log_file_uses_kubelet_line_format(tmp_path: Path) -> None:
    written(tmp_path, b"one\ntw", b"o\n")
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == (
        b"2026-01-01T12:00:00.250000Z stdout F one\n2026-01-01T12:00:00.250000Z stdout F two\n"
    )
    assert path.stat().st_mode & 0o777 == 0o600


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_log_reader_returns_all_written_lines(tmp_path_factory: object, pieces: list[bytes]) -> None:
    directory = tmp_path_factory.mktemp("log")  # type: ignore[attr-defined]
    whole = b"".join(pieces)
    expected = whole if not whole or whole.endswith(b"\n") else whole + b"\n"
    assert text(written(directory, *pieces, segment_bytes=256, segments=1000)) == expected


def test_very_long_log_line_is_read_as_one_line(tmp_path: Path) -> None:
    long = b"x" * 200_000
    reader = written(tmp_path, b"before\n", long, long, b"\nafter\n")
    assert text(reader) == b"before\n" + long + long + b"\nafter\n"
    assert text(reader, reader.tail(2)) == long + long + b"\nafter\n"


def test_log_flood_drops_middle_segments(tmp_path: Path) -> None:
    reader = written(tmp_path, *(b"line %d\n" % number for number in range(10_000)), segment_bytes=1024, segments=4)
    assert len(list(tmp_path.iterdir())) == 4
    found = text(reader).splitlines()
    assert found[0] == b"line 0"
    assert found[-1] == b"line 9999"
    assert len(found) < 200


def test_log_reader_resumes_at_its_position(tmp_path: Path) -> None:
    writer, reader = LogWriter(tmp_path), LogReader(tmp_path)
    writer.write(b"one\n", TIME)
    data, position = reader.read(0)
    assert data.endswith(b"one\n")
    assert reader.read(position) == (b"", position)
    writer.write(b"two\nthr", TIME)
    data, position = reader.read(position)
    assert data.endswith(b"two\n")
    writer.end(TIME)
    assert reader.read(position)[0].endswith(b"thr\n")


@given(st.integers(0, 60), st.integers(1, 50))
def test_log_tail_returns_requested_number_of_lines(tmp_path_factory: object, count: int, lines: int) -> None:
    directory = tmp_path_factory.mktemp("log")  # type: ignore[attr-defined]
    reader = written(directory, *(b"%d\n" % number for number in range(lines)), segment_bytes=128, segments=100)
    expected = [b"%d" % number for number in range(lines)][max(0, lines - count) :]
    assert text(reader, reader.tail(count)).splitlines() == expected


def test_missing_log_reads_as_empty(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "none")
    assert reader.read(0) == (b"", 0)
    assert reader.tail(3) == 0
    assert last_lines(None, 3, 10) == ""


def test_last_log_lines_are_bounded_by_count_and_bytes(tmp_path: Path) -> None:
    reader = written(tmp_path, *(b"line %d\n" % number for number in range(100)))
    assert last_lines(reader, 2, 1000) == "line 98\nline 99\n"
    assert last_lines(reader, 80, 8) == "line 99\n"
