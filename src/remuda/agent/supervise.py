"""Supervisor for hosts without systemd: a process that restarts `run` whenever it ends.

It has its own session and a log of limited size. A file has its pid and its start time: the pid alone could belong to
another process by now.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

from remuda.agent import disk, log, program
from remuda.agent.program import Signals

PID_FILE = "supervisor.pid"
LOG_FILE = "agent.log"
_MOST_LOG = 8 << 20
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_WELL_SECONDS = 60.0
_END_SECONDS = 20
_START_SECONDS = 20.0


def start(path: str, var: str, arguments: list[str]) -> None:
    """Start a supervisor from the program at `path`, unless one is running."""
    if running(var):
        return
    os.makedirs(var, mode=0o700, exist_ok=True)
    written = os.open(os.path.join(var, LOG_FILE), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603
            program.command(path, "supervise", *arguments),
            cwd="/",
            env=program.environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    finally:
        os.close(written)
    until = time.monotonic() + _START_SECONDS
    while not running(var):
        if process.poll() is not None or time.monotonic() > until:
            raise OSError(f"the agent's supervisor did not start; see {os.path.join(var, LOG_FILE)}")
        time.sleep(0.02)


def supervise(path: str, var: str, arguments: list[str]) -> int:
    """Supervise in this process, until SIGTERM."""
    if running(var) not in (0, os.getpid()):
        log.error("another supervisor is running; exiting")
        return 1
    disk.write(os.path.join(var, PID_FILE), f"{os.getpid()} {started(os.getpid())}\n".encode())
    try:
        _Supervisor(program.command(path, "run", *arguments), os.path.join(var, LOG_FILE)).keep_running()
    finally:
        disk.remove(os.path.join(var, PID_FILE))
    return 0


class _Supervisor:
    def __init__(self, command: list[str], log_path: str) -> None:
        self._command = command
        self._log_path = log_path
        self._arrivals = Signals(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

    def keep_running(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            began = time.monotonic()
            self._rotate()
            child = subprocess.Popen(self._command)  # noqa: S603
            if self._outlives(child):
                return
            well = time.monotonic() - began > _WELL_SECONDS
            pause = _SHORTEST_PAUSE if well else min(pause * 2, _LONGEST_PAUSE)
            log.warning(f"the agent exited with {child.returncode}; restarting it in {pause:g} s")
            if self._stopped_within(pause):
                return

    def _outlives(self, child: subprocess.Popen[bytes]) -> bool:
        """Wait for the end of the agent; return whether this process was asked to stop."""
        until: float | None = None
        while child.poll() is None:
            sign = self._arrivals.wait(None if until is None else max(0.0, until - time.monotonic()))
            if sign in (signal.SIGTERM, signal.SIGINT) and until is None:
                child.terminate()
                until = time.monotonic() + _END_SECONDS
            elif until is not None and time.monotonic() > until:
                child.kill()
                child.wait()
        return until is not None

    def _stopped_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._arrivals.wait(max(0.0, until - time.monotonic())) in (signal.SIGTERM, signal.SIGINT):
                return True
        return False

    def _rotate(self) -> None:
        """Rotate the log, with one older copy. Other processes have it open, so its content is moved, not the file."""
        try:
            if os.stat(self._log_path).st_size > _MOST_LOG:
                disk.write(self._log_path + ".1", disk.read(self._log_path) or b"")
                os.truncate(self._log_path, 0)
        except OSError:
            pass


# Known by its pid


def running(var: str) -> int:
    """Return the pid of the supervisor; 0 when there is none."""
    try:
        pid, since = (disk.read(os.path.join(var, PID_FILE)) or b"").decode().split()
        return int(pid) if since == started(int(pid)) else 0
    except (ValueError, OSError):
        return 0


def started(pid: int) -> str:
    """Return the start time of a process, in the kernel's units; "-" when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The second field, the name of the program, may contain blanks and parentheses.
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return "-"
    # Index 19 after the name is field 22 of proc(5), the start time.
    return "-" if fields[0] in ("Z", "X") else fields[19]


def stop(var: str) -> None:
    """Stop the supervisor, and with it the agent."""
    pid = running(var)
    if not pid:
        return
    os.kill(pid, signal.SIGTERM)
    # The supervisor itself gives the agent `_END_SECONDS`.
    until = time.monotonic() + _END_SECONDS + 5
    while running(var) == pid:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    disk.remove(os.path.join(var, PID_FILE))
