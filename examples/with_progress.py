"""Run a command that says little or too much, and report every few seconds that it still runs and what it does.

    python3 with_progress.py TITLE COMMAND [ARGUMENT]...

On success only the title and the duration remain. On failure the whole output of the command follows.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

SECONDS = 2.0
_CLEAR = "\r\033[K"


def lines(process: subprocess.Popen[str], seconds: float = SECONDS) -> Iterator[str | None]:
    """Yield each line of the output, and None whenever there was none for so many seconds."""
    assert process.stdout is not None
    found: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            found.put(line)
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = found.get(timeout=seconds)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


def main() -> int:
    title, *command = sys.argv[1:]
    terminal = sys.stdout.isatty()
    began = shown = time.monotonic()
    said: list[str] = []
    last = ""
    print(f"{title} …", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in lines(process):
            if line is not None:
                said.append(line)
                last = line.strip() or last
            now = time.monotonic()
            if now - shown >= SECONDS:
                shown = now
                text = f"  {now - began:3.0f} s  {last}"[: shutil.get_terminal_size().columns - 1]
                print(f"{_CLEAR}{text}" if terminal else text, end="" if terminal else "\n", flush=True)
    if terminal:
        print(_CLEAR, end="")
    if process.returncode:
        print("".join(said), end="")
        print(f"{title} failed with exit code {process.returncode}", flush=True)
    else:
        print(f"  done in {time.monotonic() - began:.0f} s", flush=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
