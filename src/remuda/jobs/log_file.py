"""Log of limited size on disk, in the kubelet's format: `time stdout F text`, or P if a line continues.

The log is kept in segments named by the position at which they begin. The first one and the last ones stay and those in
between are deleted, because people look for how a program began and how it ended. Positions count every byte ever
written, so a reader notices deleted parts.

Standard library only: the supervisor imports this and no other module of Remuda.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

SEGMENT_BYTES = 1024 * 1024
SEGMENTS = 10
_LONGEST_LINE = 16 * 1024  # longer ones are cut into parts
_PIECE = 64 * 1024
_SUFFIX = ".log"
_TIME = len("2026-01-02T03:04:05.678901Z")
_HEAD = _TIME + len(" stdout F ")


def stamp(seconds: float) -> bytes:
    """Return the current time as `2026-01-02T03:04:05.678901Z`."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()  # noqa: UP017


def lines(data: bytes, time: bytes) -> tuple[bytes, bytes]:
    """Return output as lines of the log, and the rest: the beginning of a line that has not ended yet."""
    *whole, rest = data.split(b"\n")
    written = [_line(time, text) for text in whole]
    while len(rest) > _LONGEST_LINE:
        written.append(b"%b stdout P %b\n" % (time, rest[:_LONGEST_LINE]))
        rest = rest[_LONGEST_LINE:]
    return b"".join(written), rest


def _line(time: bytes, text: bytes) -> bytes:
    parts = []
    while len(text) > _LONGEST_LINE:
        parts.append(b"%b stdout P %b\n" % (time, text[:_LONGEST_LINE]))
        text = text[_LONGEST_LINE:]
    parts.append(b"%b stdout F %b\n" % (time, text))
    return b"".join(parts)


class LogWriter:
    def __init__(self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES, segments: int = SEGMENTS) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments = segments
        self._starts: list[int] = []
        self._position = 0
        self._descriptor = -1
        self._rest = b""
        self._begin()

    def write(self, data: bytes, time: bytes) -> None:
        """Append output of the program, as it arrives."""
        whole, self._rest = lines(self._rest + data, time)
        self._append(whole)

    def end(self, time: bytes) -> None:
        if self._rest:
            self._append(_line(time, self._rest))
            self._rest = b""
        os.close(self._descriptor)

    def _append(self, data: bytes) -> None:
        """Append whole lines. A segment ends with a line, so it may be a little longer than its limit."""
        while data:
            room = self._starts[-1] + self._segment_bytes - self._position
            if room <= 0:
                self._begin()
                continue
            cut = len(data) if len(data) <= room else data.find(b"\n", room) + 1
            os.write(self._descriptor, data[:cut])
            self._position += cut
            data = data[cut:]

    def _begin(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._starts.append(self._position)
        path = _path(self._directory, self._position)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if len(self._starts) > self._segments:
            _path(self._directory, self._starts.pop(1)).unlink(missing_ok=True)


class LogReader:
    """Reader of a log that may still be written, from any position."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, position: int) -> tuple[bytes, int]:
        """Return some whole lines from a position on, and the position behind them; nothing if there is no more yet.

        Deleted segments are skipped."""
        for start, path in self._segments():
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    if start + size <= position:
                        continue
                    begin = max(start, position)
                    file.seek(begin - start)
                    piece = file.read(_PIECE)
            except FileNotFoundError:
                continue  # the writer has just deleted it
            cut = piece.rfind(b"\n") + 1
            return piece[:cut], begin + cut
        return b"", position

    def tail(self, count: int) -> int:
        """Return the position of the last so many lines."""
        segments = self._segments()
        for start, path in reversed(segments):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                break
            at = len(data)
            while at > 0:
                line = data.rfind(b"\n", 0, at - 1) + 1
                if _ends(data[line : line + _HEAD]):
                    if not count:
                        return start + at
                    count -= 1
                at = line
        return segments[0][0] if segments else 0

    @property
    def end(self) -> int:
        segments = self._segments()
        return segments[-1][0] + segments[-1][1].stat().st_size if segments else 0

    def _segments(self) -> list[tuple[int, Path]]:
        try:
            names = sorted(name for name in os.listdir(self._directory) if name.endswith(_SUFFIX))
        except FileNotFoundError:
            return []
        return [(int(name[: -len(_SUFFIX)]), self._directory / name) for name in names]


def split(line: bytes) -> tuple[bytes, bytes, bool]:
    """Split a line of the log into time and text, and whether the text ends there."""
    return line[:_TIME], line[_HEAD:], _ends(line)


def _ends(line: bytes) -> bool:
    return line[_HEAD - 2 : _HEAD] == b"F "


def _path(directory: Path, start: int) -> Path:
    return directory / f"{start:020d}{_SUFFIX}"
