"""Run a command beside busy processes, to find tests that fail only on a slow machine.

    python -m tests.lab.busy make test                  8 busy processes per processor
    python -m tests.lab.busy --per-core 2 .ci/run

The busy processes stay in the session of the command: in a session of their own, Linux's autogroup scheduling would
give all of them together only as much time as the command. They end with the command, also when this program is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_BUSY = "while True: pass"


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.lab.busy", description="Run a command beside busy processes.")
    parser.add_argument("--per-core", type=int, default=8, help="busy processes per processor (default: 8)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command and its arguments")
    given = parser.parse_args()
    if not given.command:
        parser.error("no command given")
    count = given.per_core * (os.cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-ISc", _BUSY], preexec_fn=_die_with_parent) for _ in range(count)]
    print(f"{count} busy processes run beside: {' '.join(given.command)}", flush=True)
    began = time.monotonic()
    try:
        return subprocess.call(given.command)
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
        print(f"{time.monotonic() - began:.0f} s beside {count} busy processes", flush=True)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
