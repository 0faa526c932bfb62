"""The width of the terminal that a stream writes to, whatever other streams do."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from io import StringIO
from typing import TextIO

import pytest

from remuda.cli.text_wrap import terminal_size


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    own, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 132, 0, 0))
    with open(theirs, "w") as stream:
        yield stream
    os.close(own)


def test_size_is_that_of_the_stream(terminal: TextIO) -> None:
    assert terminal_size(terminal) == (132, 40)
    assert terminal_size(StringIO()) is None


def test_environment_overrides_size(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert terminal_size(terminal) == (60, 40)
    monkeypatch.setenv("COLUMNS", "wide")
    assert terminal_size(terminal) == (132, 40)


def test_terminal_without_a_size_has_the_usual_one(terminal: TextIO) -> None:
    fcntl.ioctl(terminal.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    assert terminal_size(terminal) == (80, 24)
