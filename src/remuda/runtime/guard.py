"""Guard of the event loop: reports callbacks that block it for longer than 50 ms.

One loop serves every controller, so one slow callback makes all of them late. On a busy machine the clock alone proves
nothing: a callback may be slow because it was not given a processor. So the guard measures two things instead:

- the processor time a callback uses itself, without the garbage collector's; more of it is allowed while others want
  the processors too, because they slow down the core and the caches it shares with them;
- the time it *waits* (a lock, a file, `time.sleep`): its thread sleeps, uses no processor, does not queue for one, and
  no other thread of this process, which it may wait for, works or queues for a processor.

A second thread takes the stack of the offender while it is at it. What is imported at first use is paid once and does
not count. Works on asyncio's own loop, whose callbacks are Python; `REMUDA_LOOP_GUARD=1` switches it on in the program.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

import msgspec

log = logging.getLogger(__name__)

LIMIT_SECONDS = 0.05
VARIABLE = "REMUDA_LOOP_GUARD"

_SAMPLE_SECONDS = 0.01
_IDLE_SHARE = 0.2  # of the time it seems to wait, a thread that really waits works less than this
_BUSY_SHARE = 0.5  # other threads that worked for more may have held the interpreter lock

_SHARED_CORE = 3.0  # times the limit, beside busy processes: an allowance, not a measured value
_SLEEPS = ("S", "D")  # states of a thread that waits for something other than a processor

_STARTS_PROGRAM: CodeType = subprocess.Popen._execute_child.__code__  # type: ignore[attr-defined]

_Stack = list[tuple[CodeType, int]]  # each with the line it is at


class SlowCallback(msgspec.Struct, frozen=True):
    """A callback that held up the loop."""

    what: str
    seconds: float
    waited: bool  # or else it computed
    place: str = ""  # the file that the callback's own code is in; empty if it is not Python's
    stack: tuple[str, ...] = ()  # outermost first; empty if no sample was taken in time

    def __str__(self) -> str:
        how = "waited" if self.waited else "computed"
        where = "\n".join(self.stack) or "  (no stack: the callback did not release the interpreter lock)"
        return f"{self.what} {how} for {self.seconds * 1000:.0f} ms in the event loop:\n{where}"

    def involves(self, folder: str) -> bool:
        """Return whether the callback is from files below `folder`, or was running code there when it was sampled."""
        return folder in self.place or any(folder in line for line in self.stack)


class _Work(NamedTuple):
    """Seconds that threads of this process have worked, or queued for a processor."""

    own: float  # of the loop's thread
    others: float
    watchdog: float
    runnable: bool  # one of the others works or queues now; the kernel counts that queueing only when it ends


class Guard:
    """Watches the callbacks run by the thread that makes it, between `start` and `stop`."""

    def __init__(self, report: Callable[[SlowCallback], None], *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._report = report
        self._limit = limit_seconds
        self._thread = threading.get_ident()
        self._native = threading.get_native_id()
        self._over = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="loop guard", daemon=True)
        self._handle: asyncio.Handle | None = None  # what runs now
        self._began = 0.0
        self._cpu = 0.0
        self._collecting = 0.0  # processor time the garbage collector took of it
        self._collection_began = 0.0
        self._modules = 0  # how many were imported when it began
        self._stacks: list[_Stack] = []  # one per look at it, so that no single moment speaks for the whole
        self._reported = False

    def start(self) -> None:
        global _active
        if _active is not None:
            raise RuntimeError("the event loop already has a guard")
        _active = self
        asyncio.Handle._run = _guarded_run  # type: ignore[method-assign, assignment]
        gc.callbacks.append(self._on_collection)
        self._watchdog.start()

    def stop(self) -> None:
        global _active
        _active = None
        asyncio.Handle._run = _plain_run  # type: ignore[method-assign]
        gc.callbacks.remove(self._on_collection)
        self._over.set()
        self._watchdog.join()

    # in the thread of the loop

    def run(self, handle: asyncio.Handle) -> None:
        if threading.get_ident() != self._thread:
            _plain_run(handle)
            return
        self._reported = False
        self._stacks = []
        self._collecting = 0.0
        self._modules = len(sys.modules)
        self._cpu = time.thread_time()
        self._began = time.monotonic()
        self._handle = handle
        try:
            _plain_run(handle)
        finally:
            self._handle = None
            used = time.thread_time() - self._cpu - self._collecting
            if used > self._limit and used > self._limit * _slowdown():
                self._accuse(handle, used, waited=False)

    def _accuse(self, handle: asyncio.Handle, seconds: float, *, waited: bool) -> None:
        stacks = self._stacks
        # On a busy machine the watchdog may miss an import: the modules themselves show it.
        exempt = len(sys.modules) > self._modules or any(map(_is_exempt, stacks))
        if not self._reported and not exempt and not _ends_the_loop(handle):
            self._reported = True
            typical = stacks[len(stacks) // 2] if stacks else []
            self._report(SlowCallback(_name(handle), seconds, waited, _place(handle), _formatted(typical)))

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if threading.get_ident() == self._thread:
            if phase == "start":
                self._collection_began = time.thread_time()
            else:
                self._collecting += time.thread_time() - self._collection_began

    # in the watchdog's

    def _watch(self) -> None:
        suspect: tuple[asyncio.Handle, float, _Work] | None = None
        while not self._over.wait(_SAMPLE_SECONDS):
            handle, began, now = self._handle, self._began, time.monotonic()
            if handle is None or now - began < self._limit / 2:
                suspect = None
                continue
            self._take_stack(handle)
            work = self._work()
            if suspect is None or suspect[0] is not handle or work.runnable or _state(self._native) not in _SLEEPS:
                suspect = (handle, now, work)
            elif self._has_waited(now - suspect[1], suspect[2], work):
                self._caught_waiting(handle, now - began)
                suspect = None

    def _take_stack(self, handle: asyncio.Handle) -> None:
        try:
            stack = _inside(sys._current_frames().get(self._thread))
        except AttributeError:  # CPython 3.11 has handed out a frame that was just ending: seen once, under load
            return
        if stack and self._handle is handle:
            self._stacks.append(stack)

    def _work(self) -> _Work:
        own, others, watchdog, runnable, this = 0.0, 0.0, 0.0, False, threading.get_native_id()
        for thread in _threads():
            if thread == self._native:
                own = _seconds_of(thread)
            elif thread == this:
                watchdog = _seconds_of(thread)
            else:
                others += _seconds_of(thread)
                runnable = runnable or _state(thread) == "R"
        return _Work(own, others, watchdog, runnable)

    def _has_waited(self, seconds: float, before: _Work, after: _Work) -> bool:
        # The watchdog itself may have held the interpreter lock while it queued for a processor.
        seconds -= after.watchdog - before.watchdog
        own, others = after.own - before.own, after.others - before.others
        return seconds >= self._limit and own < _IDLE_SHARE * seconds and others < _BUSY_SHARE * seconds

    def _caught_waiting(self, handle: asyncio.Handle, seconds: float) -> None:
        if self._handle is handle:
            self._accuse(handle, seconds, waited=True)


_active: Guard | None = None
_plain_run = asyncio.Handle._run


def _guarded_run(handle: asyncio.Handle) -> None:
    guard = _active
    if guard is None:
        _plain_run(handle)
    else:
        guard.run(handle)


@contextmanager
def guarded(report: Callable[[SlowCallback], None], *, limit_seconds: float = LIMIT_SECONDS) -> Iterator[None]:
    """Guards the loop that this thread runs meanwhile. `report` may be called by another thread."""
    guard = Guard(report, limit_seconds=limit_seconds)
    guard.start()
    try:
        yield
    finally:
        guard.stop()


def wanted() -> bool:
    """Return whether the user enabled the guard. The program must then run on asyncio's own event loop."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def log_slow_callback(slow_call: SlowCallback) -> None:
    log.warning("%s", slow_call)


def _name(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined]
    if (task := _task(callback)) is not None:
        coroutine: Any = task.get_coro()
        return f"task {task.get_name()} ({coroutine.__qualname__})"
    return f"callback {getattr(callback, '__qualname__', callback)!s}"


def _ends_the_loop(handle: asyncio.Handle) -> bool:
    """asyncio waits for a thread that it starts then; nobody else is on the loop any more."""
    task = _task(handle._callback)  # type: ignore[attr-defined]
    code = getattr(task.get_coro() if task is not None else None, "cr_code", None)
    return code is asyncio.BaseEventLoop.shutdown_default_executor.__code__


def _place(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined]
    if (task := _task(callback)) is not None:
        return getattr(getattr(task.get_coro(), "cr_code", None), "co_filename", "")
    return getattr(getattr(inspect.unwrap(callback), "__code__", None), "co_filename", "")


def _task(callback: object) -> asyncio.Task[Any] | None:
    owner = getattr(callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


def _inside(frame: FrameType | None) -> _Stack:
    """Return the frames of the callback itself: those below this module and asyncio's own, innermost first.

    Their source lines are not looked up here: while files are read, the callback would run on and the stack would be
    lost.
    """
    found: _Stack = []
    while frame is not None and frame.f_code.co_filename != __file__:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found[:-1] if frame is not None else []


def _formatted(stack: _Stack) -> tuple[str, ...]:
    entries = [(code.co_filename, line, code.co_name, None) for code, line in reversed(stack)]
    return tuple(line.rstrip() for line in traceback.StackSummary.from_list(entries).format())


def _is_exempt(stack: _Stack) -> bool:
    """Return whether the stack is exempt because it imports a module or starts a program.

    An import costs its time once. When a program is started, asyncio waits until it runs: on a busy machine, as long as
    it takes to get a processor.
    """
    return any(code is _STARTS_PROGRAM or code.co_filename.startswith("<frozen importlib") for code, _ in stack)


def _slowdown() -> float:
    """Return how many times as much processor time as usual work may take now, beside others that want processors."""
    try:
        with open("/proc/loadavg") as file:
            lately, _, _, tasks, _ = file.read().split()
        wanted = max(float(lately), float(tasks.partition("/")[0]))
    except (OSError, ValueError):  # this system does not tell
        return 1.0
    return _SHARED_CORE if wanted > (os.cpu_count() or 1) else 1.0


def _threads() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return []


def _seconds_of(thread: int) -> float:
    """Return the seconds that a thread has run, or has waited for a processor."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat") as file:
            worked, queued, _ = file.read().split()
    except (OSError, ValueError):  # it has ended, or this system does not tell
        return 0.0
    return (int(worked) + int(queued)) / 1e9


def _state(thread: int) -> str:
    """Return the scheduler's letter for a thread; empty if it has ended, or this system does not tell."""
    try:
        with open(f"/proc/self/task/{thread}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
