"""A program on a terminal of eighty columns, as a person has it: what it shows, and how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.children import die_with_parent
from tests.lab.limits import LIMIT_SECONDS

COLUMNS, LINES = 80, 24
_LOOK_SECONDS = 0.1
_MOST_LOOKS = 100  # a program may have work to do every now and then


def _at_home(terminal: int) -> None:
    """In the child: the terminal is its own, so that what is typed there reaches it, Ctrl-C above all."""
    os.login_tty(terminal)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()


class Session:
    """A program that runs on a terminal."""

    def __init__(self, words: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        said = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        said |= {"TERM": "xterm-256color", **(env or {})}
        self._process = subprocess.Popen(
            list(words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=said,
            cwd=cwd,
            preexec_fn=lambda: _at_home(theirs),
        )
        os.close(theirs)
        self._terminal = own
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, words: str, *, seconds: float = LIMIT_SECONDS) -> None:
        """Until these are shown."""
        deadline = time.monotonic() + seconds
        while words not in self.shown:
            assert time.monotonic() < deadline, f"not shown within {seconds} s: {words!r}, but {self.shown!r}"
            assert self.listen(deadline - time.monotonic()), f"ended without {words!r}: {self.shown!r}"

    def end(self, *, seconds: float = LIMIT_SECONDS) -> int:
        """Until it ends by itself; its exit code."""
        deadline = time.monotonic() + seconds
        while self.listen(deadline - time.monotonic()):
            assert time.monotonic() < deadline, f"still there after {seconds} s: {self.shown!r}"
        return self._process.wait(seconds)

    def becomes_idle(self) -> None:
        """Wait until the program sleeps: it has done what it does after its last output, and waits for input."""
        for _ in range(_MOST_LOOKS):
            before = self._activity()
            time.sleep(_LOOK_SECONDS)
            if before is not None and self._activity() == before:
                return

    def _activity(self) -> int | None:
        """A number that changes when any thread runs; None if one runs, or waits for a processor or a disk."""
        ran = 0
        for task in Path(f"/proc/{self._process.pid}/task").glob("*"):
            try:
                if (task / "stat").read_text().rpartition(")")[2].split()[0] != "S":
                    return None
                ran += int((task / "schedstat").read_text().split()[0])
            except OSError:  # the thread has ended
                return None
        return ran

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def listen(self, seconds: float) -> bool:
        """Takes in what is shown, waiting so long for it; False: the other end is gone."""
        if not select.select([self._terminal], [], [], max(seconds, 0.0))[0]:
            return True
        try:
            found = os.read(self._terminal, 65536)
        except OSError:  # how Linux says that nobody has the other end open any more
            return False
        self.shown += found.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(found)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
