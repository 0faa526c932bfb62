"""Runner of one instruction of a plan, as a process group, with limited output.

A command cannot harm the agent. Only the beginning and the end of its output are kept. When the agent stops or the time
limit is over, the command is ended with all its children. A process that it leaves behind, with its output still open,
delays the agent only for a moment.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import IO

from remuda.agent import AgentError, log
from remuda.agent.config import Config
from remuda.agent.formats import MOST_OUTPUT
from remuda.agent.layout import search_path
from remuda.agent.plan import Instruction
from remuda.agent.rules import Result

_TICK_SECONDS = 0.25
_AFTERWARDS_SECONDS = 2.0  # how long output is read after a command has ended
_GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
_PIPE_BYTES = 1 << 16  # capacity of a pipe
_MOST_LINE = 4096
_MOST_LOGGED = 1 << 20


class Stopped(AgentError):
    """Unfinished instruction: the agent must stop, or a newer plan must run."""


class InstructionError(AgentError):
    """Instruction that could not be started; the text says why."""


def run(
    instruction: Instruction,
    folder: str,
    *,
    attempt: int,
    config: Config,
    stop: threading.Event,
    environment: Mapping[str, str] = os.environ,
) -> Result:
    """Run an instruction in `folder`, which is created, and filled from the image if there is one."""
    os.makedirs(folder, mode=0o700)
    if instruction.image:
        _stage(instruction.image, folder, config)
    command = instruction.command or os.path.join(folder, "run.sh")
    if "/" in command:
        command = os.path.join(folder, command)
    path = environment.get("PATH", os.defpath)
    if config.root:
        path = search_path(config.root, path)
    variables = _environment(instruction, folder, attempt, config, environment)
    variables["PATH"] = f"{path}:{folder}"
    # As in system-agent: the folder is on the command's own PATH, but the command itself is not looked up there.
    program = _found(command, path)
    if program is None:
        found = os.path.exists(command)
        raise InstructionError(f"{command} is not executable" if found else f"{command} does not exist")
    try:
        process = subprocess.Popen(  # noqa: S603
            [command, *instruction.args],
            executable=program,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise InstructionError(f"cannot start {command}: {getattr(error, 'strerror', None) or error}") from None
    with process:
        return _Run(process, instruction, config.instruction_timeout_seconds, stop).result()


def _stage(image: str, folder: str, config: Config) -> None:
    from remuda.agent.images import ImageError, stage  # imported only by those who need images

    try:
        stage(image, folder, config)
    except ImageError as error:
        raise InstructionError(str(error)) from None


def _found(command: str, path: str) -> str | None:
    """Return the path of a program, or None."""
    places = [""] if "/" in command else path.split(":")
    for place in places:
        program = os.path.join(place, command)
        if os.access(program, os.X_OK) and not os.path.isdir(program):
            return program
    return None


def _environment(
    instruction: Instruction, folder: str, attempt: int, config: Config, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment: the base, the plan's variables, and ours, which the plan cannot override."""
    variables = dict(base)
    if config.root:
        variables["REMUDA_HOST_ROOT"] = config.root
    if config.address:
        variables["REMUDA_HOST_ADDRESS"] = config.address
    for pair in instruction.env:
        name, _, value = pair.partition("=")
        if name:
            variables[name] = value
    variables["CATTLE_AGENT_EXECUTION_PWD"] = folder
    variables["CATTLE_AGENT_ATTEMPT_NUMBER"] = str(attempt)
    return variables


class BoundedOutput:
    """Beginning and end of a stream of any length."""

    def __init__(self, most: int = MOST_OUTPUT) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 4 * self._half:
            self._cut()

    def _cut(self) -> None:
        extra = len(self._tail) - self._half
        if extra > 0:
            del self._tail[:extra]
            self._dropped += extra

    def content(self) -> bytes:
        self._cut()
        mark = f"\n[{self._dropped} bytes left out]\n".encode() if self._dropped else b""
        return bytes(self._head) + mark + bytes(self._tail)


class _Run:
    """One process while it runs."""

    def __init__(
        self, process: subprocess.Popen[bytes], instruction: Instruction, seconds: float, stop: threading.Event
    ) -> None:
        self._process = process
        self._name = instruction.name or "without a name"
        self._seconds = seconds
        self._stop = stop
        self._streams = {"stdout": BoundedOutput(), "stderr": BoundedOutput()}
        self._logged = 0

    def result(self) -> Result:
        late = False
        until = time.monotonic() + self._seconds if self._seconds else None
        with selectors.DefaultSelector() as selector:
            for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, name)
            while self._process.poll() is None:
                if self._stop.is_set():
                    self._end()
                    raise Stopped
                if until is not None and time.monotonic() > until:
                    self._end()
                    late = True
                    break
                self._read(selector, self._pause(selector))
            self._rest(selector)
        stderr = self._streams["stderr"].content()
        if late:
            stderr += f"\nended after {self._seconds:g} seconds, the time limit of instructions on this host\n".encode()
        # 124 is the exit code of timeout(1).
        return Result(self._process.returncode or (124 if late else 0), self._streams["stdout"].content(), stderr)

    def _pause(self, selector: selectors.BaseSelector) -> float:
        if selector.get_map():
            return _TICK_SECONDS
        try:  # it closed its output but still runs: wait for its end
            self._process.wait(_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        return 0.0

    def _rest(self, selector: selectors.BaseSelector) -> None:
        """Read the last output.

        A process left behind may keep the pipe open, or write to it, forever. Data that is already in the pipes is read
        however late it is: on a busy host this process may pause for longer than `_AFTERWARDS_SECONDS`.
        """
        until = time.monotonic() + _AFTERWARDS_SECONDS
        left = len(selector.get_map()) * _PIPE_BYTES
        while selector.get_map() and not self._stop.is_set():
            size = self._read(selector, 0.1)
            left -= size
            if time.monotonic() >= until and (not size or left <= 0):
                break

    def _read(self, selector: selectors.BaseSelector, seconds: float) -> int:
        """Return how many bytes were read."""
        size = 0
        for key, _ in selector.select(seconds):
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
            chunk = os.read(stream.fileno(), 1 << 16)
            if not chunk:
                selector.unregister(stream)
                continue
            size += len(chunk)
            self._streams[key.data].add(chunk)
            self._log(key.data, chunk)
        return size

    def _log(self, name: str, chunk: bytes) -> None:
        if self._logged > _MOST_LOGGED:
            return
        self._logged += len(chunk)
        for line in chunk.splitlines():
            log.debug(f"[{self._name}:{name}] {line[:_MOST_LINE].decode('utf-8', 'replace')}")

    def _end(self) -> None:
        """End the process group. Its id stays ours until its leader is waited for, which comes last."""
        os.killpg(self._process.pid, signal.SIGTERM)
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                break
            time.sleep(0.05)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
