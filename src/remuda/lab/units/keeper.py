"""Keeper: supervises one unit, as a process with its own session.

SIGTERM ends it with its unit; SIGUSR1 restarts the unit. It sleeps until a signal arrives, the program ends, or the
program reports that it is ready. If it is killed, the program keeps running, and the next keeper takes it over.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import time

from remuda.agent import AgentError, disk, log
from remuda.agent.program import Signals
from remuda.agent.supervise import started
from remuda.lab.units import processes
from remuda.lab.units.directory import ANEW, UnitDirectory
from remuda.lab.units.unitfile import BadUnit, Command, Unit, environment_of, filled

_MOST_LOG = 8 << 20
_LEAST_PAUSE = 0.5  # minimum between an end and the next start
_TICK_SECONDS = 0.1

# Results of a wait.
_STOP, _ANEW, _ENDED, _READY, _LATE = "stop", "anew", "ended", "ready", "late"


class _Interrupted(AgentError):
    """A signal arrived while a command was running."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class _Failed(AgentError):
    """Failure of the unit; the text says why."""

    def __init__(self, words: str, code: int | None = None) -> None:
        super().__init__(words)
        self.code = code


class _Process:
    """Program of the unit: a child of this process, or started by an earlier keeper."""

    def __init__(self, pid: int, handle: int, child: subprocess.Popen[bytes] | None) -> None:
        self.pid = pid
        self.started = started(pid)
        self.handle = handle  # readable when it has ended
        self._child = child

    def code(self) -> int | None:
        """Return the exit code after the end; None if it is unknown, because the program was not our child."""
        os.close(self.handle)
        return self._child.wait() if self._child is not None else None

    def send(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self.handle, number)
        except OSError:
            pass  # it has just ended


def keep(place: UnitDirectory, name: str) -> int:
    lock = place.claim(name)
    if lock is None:
        return 0  # it exists
    try:
        UnitKeeper(place, name).keep()
    finally:
        os.close(lock)
    return 0


class UnitKeeper:
    def __init__(self, place: UnitDirectory, name: str) -> None:
        self._place = place
        self._name = name
        self._arrivals = Signals(signal.SIGTERM, signal.SIGINT, ANEW)
        self._before = place.said(name)
        own = {"keeper": os.getpid(), "keeper_started": started(os.getpid())}
        self._state = self._before._replace(restarts=0, result="", **own)  # type: ignore[arg-type]
        self._unit: Unit | None = None
        self._environment: dict[str, str] = {}
        self._notify_socket: socket.socket | None = None  # on which the program reports that it is ready
        self._code: int | None = 0
        self._trouble = ""

    def keep(self) -> None:
        process = self._adopted()
        if process is None and not self._place.wants(self._name):
            return  # the unit was stopped before this keeper had started
        self._state = self._state._replace(state=self._state.state if process else "activating")
        self._place.write(self._name, self._state)
        while True:
            why = self._run(process)
            process = None
            if why == _STOP:
                return self._set_state("inactive", pid=0)
            if why == _ANEW:
                continue
            if self._unit is None or not self._unit.restarts_after(self._code):
                self._place.want_no_more(self._name)
                return self._set_state("failed" if self._trouble else "inactive", pid=0, result=self._trouble)
            log.info(f"{self._name} ended ({self._trouble or 'successfully'}); restarting it")
            self._set_state("activating", pid=0, result=self._trouble, restarts=self._state.restarts + 1)
            if self._wait(None, max(self._unit.restart_seconds, _LEAST_PAUSE)) == _STOP:
                return self._set_state("inactive", pid=0)

    def _adopted(self) -> _Process | None:
        """Return the program that a killed keeper has left running."""
        handle = processes.opened(self._before.pid, self._before.started) if self._before.pid else None
        if handle is None:
            return None
        log.info(f"{self._name} is running; supervising it again")
        return _Process(self._before.pid, handle, None)

    # -- one run, from a start to an end -----------------------------------------------------------------------------

    def _run(self, process: _Process | None) -> str:
        self._code, self._trouble = 0, ""
        adopted = process is not None
        try:
            self._unit = self._place.unit(self._name)
            self._environment = self._variables(self._unit)
            why = self._attend(self._unit, process or self._begin(self._unit), adopted)
        except _Interrupted as interrupted:
            why = interrupted.what
        except (BadUnit, OSError, _Failed) as error:
            why, self._trouble, self._code = _ENDED, str(error), getattr(error, "code", None)
            log.warning(f"{self._name}: {error}")
        if self._unit is not None:
            self._clean_up(self._unit)
        return why

    def _begin(self, unit: Unit) -> _Process:
        name = f"remuda-{secrets.token_hex(16)}"
        self._set_state("activating", pid=0, runs=self._state.runs + 1, notify=name)
        # A killed keeper may have left processes of the previous run.
        self._end_rest(unit)
        self._listen(unit)
        for command in (*unit.before, *unit.start[:-1]):
            self._command(command)
        return self._start(unit.start[-1])

    def _attend(self, unit: Unit, process: _Process, adopted: bool) -> str:
        """Wait until the program ends or must be stopped."""
        active = adopted and self._before.state == "active"
        ready = active or unit.type in ("simple", "exec")
        if adopted and not ready:
            self._listen(unit)
        until = None
        if unit.start_seconds and unit.type == "notify" and not ready:
            until = time.monotonic() + unit.start_seconds
        while True:
            self._set_state("active" if active else "activating", pid=process.pid, started=process.started)
            if ready and not active:
                if interrupted := self._follow_up(unit, process):
                    return interrupted
                active = True
                continue
            what = self._wait(process, None if until is None else until - time.monotonic())
            if what == _READY:
                ready, until = True, None
            elif what == _ENDED:
                self._code = process.code()
                break
            elif what == _LATE:
                self._end(unit, process)
                raise _Failed(f"it did not report readiness within {unit.start_seconds:g} s")
            else:
                self._set_state("deactivating")
                self._end(unit, process)
                return what
        if self._code != 0:
            self._trouble = (
                "it ended with an unknown exit code" if self._code is None else f"it ended with {self._code}"
            )
            return _ENDED
        if unit.type == "oneshot":
            for command in unit.started:
                self._command(command)
        if unit.remain:
            self._set_state("active", pid=0)
            return self._wait(None, None)
        return _ENDED

    def _follow_up(self, unit: Unit, process: _Process) -> str | None:
        """Run ExecStartPost. Return the signal that came meanwhile, after the program has ended because of it."""
        try:
            for command in unit.started:
                self._command(command)
        except _Interrupted as interrupted:
            self._set_state("deactivating")
            self._end(unit, process)
            return interrupted.what
        except _Failed:
            self._end(unit, process)
            raise
        return None

    def _end(self, unit: Unit, process: _Process) -> None:
        """Stop the program: SIGTERM first, SIGKILL after the time limit."""
        for command in unit.stop:
            self._command_anyway(command)
        process.send(signal.SIGTERM)
        if unit.kill_mode == "control-group":
            self._send_rest(signal.SIGTERM)
        until = time.monotonic() + unit.stop_seconds if unit.stop_seconds else None
        while not select.select([process.handle], [], [], _TICK_SECONDS)[0]:
            if until is not None and time.monotonic() > until:
                process.send(signal.SIGKILL)
        process.code()

    def _clean_up(self, unit: Unit) -> None:
        self._end_rest(unit)
        for command in unit.after:
            self._command_anyway(command)
        if self._notify_socket is not None:
            self._notify_socket.close()
            self._notify_socket = None

    def _end_rest(self, unit: Unit) -> None:
        """Kill the processes that the program left behind, unless the unit's KillMode excludes them."""
        if unit.kill_mode not in ("control-group", "mixed"):
            return
        while self._send_rest(signal.SIGKILL):
            time.sleep(_TICK_SECONDS)

    def _send_rest(self, number: int) -> bool:
        found = processes.of_unit(self._place.root, self._name)
        return bool([each for each in found if processes.send(*each, number)])

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self, process: _Process | None, seconds: float | None) -> str:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            watched = [self._arrivals.fileno()]
            watched += [process.handle] if process is not None else []
            watched += [self._notify_socket.fileno()] if self._notify_socket is not None else []
            left = None if until is None else max(0.0, until - time.monotonic())
            found = select.select(watched, [], [], left)[0]
            if self._arrivals.fileno() in found:
                return _ANEW if self._arrivals.wait() == ANEW else _STOP
            if (
                self._notify_socket is not None
                and self._notify_socket.fileno() in found
                and self._received_ready(self._notify_socket)
            ):
                return _READY
            if process is not None and process.handle in found:
                return _ENDED
            if until is not None and time.monotonic() >= until:
                return _LATE

    def _received_ready(self, words: socket.socket) -> bool:
        try:
            return b"READY=1" in words.recv(4096, socket.MSG_DONTWAIT).split(b"\n")
        except OSError:
            return False

    def _listen(self, unit: Unit) -> None:
        """Listen for readiness on an abstract socket with a random name: paths of sockets must be short."""
        if unit.type == "notify":
            self._notify_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._notify_socket.bind(f"\0{self._state.notify}")
            self._environment["NOTIFY_SOCKET"] = f"@{self._state.notify}"

    # -- programs ----------------------------------------------------------------------------------------------------

    def _command(self, command: Command) -> None:
        """Run a command before the program, or when it is ready; a signal ends it."""
        process = self._start(command)
        what = self._wait(process, None)
        while what == _READY:
            what = self._wait(process, None)
        if what != _ENDED:
            process.send(signal.SIGKILL)
            select.select([process.handle], [], [])
            process.code()
            raise _Interrupted(what)
        code = process.code()
        if code and not command.may_fail:
            raise _Failed(f"{command.words[0]} ended with {code}", code)

    def _command_anyway(self, command: Command) -> None:
        """Run a command after the program; its result is ignored."""
        try:
            process = self._start(command)
        except (OSError, _Failed) as error:
            log.warning(f"{self._name}: {error}")
            return
        if not select.select([process.handle], [], [], self._unit.stop_seconds if self._unit else 1)[0]:
            process.send(signal.SIGKILL)
            select.select([process.handle], [], [])
        process.code()

    def _start(self, command: Command) -> _Process:
        words = filled(command.words, self._environment)
        if "/" in words[0]:
            program = self._place.program(words[0])
        else:
            program = shutil.which(words[0], path=self._environment.get("PATH")) or words[0]
        with open(self._log(), "ab") as written:
            try:
                child = subprocess.Popen(  # noqa: S603
                    words,
                    executable=program,
                    cwd=self._place.below(self._unit.folder) if self._unit else self._place.root,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=written,
                    stderr=written,
                    start_new_session=True,
                )
            except OSError as error:
                if command.may_fail:
                    return self._start(Command(("/bin/true",), True))
                raise _Failed(f"cannot start {words[0]}: {error.strerror}") from None
        return _Process(child.pid, os.pidfd_open(child.pid), child)

    def _variables(self, unit: Unit) -> dict[str, str]:
        found = {**self._place.environment(), **dict(unit.environment)}
        for name in unit.environment_files:
            content = disk.read(self._place.below(name.lstrip("-")))
            if content is None and not name.startswith("-"):
                raise _Failed(f"EnvironmentFile {name} does not exist")
            found.update(environment_of((content or b"").decode("utf-8", "replace")))
        found[processes.UNIT_VARIABLE] = self._name
        return found

    def _log(self) -> str:
        """Rotate the log, with one older copy. The program has it open, so its content is moved, not the file."""
        path = self._place.log(self._name)
        if not os.path.exists(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        elif os.stat(path).st_size > _MOST_LOG:
            disk.write(f"{path}.1", disk.read(path) or b"", durable=False)
            os.truncate(path, 0)
        return path

    def _set_state(self, state: str, **facts: object) -> None:
        said = self._state._replace(state=state, **facts)  # type: ignore[arg-type]
        if said != self._state:
            self._state = said
            self._place.write(self._name, said)
