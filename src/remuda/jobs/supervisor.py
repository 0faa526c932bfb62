"""Process between the runner and a Job's program: starts the program, writes its log, and kills it with the runner.

    python -m remuda.jobs.supervisor '{"command": […], "log": DIR, "memory": BYTES, "nice": N, "confine": {…}}'

Its standard input is the lifeline: the runner holds the other end. When the runner ends, in whatever way, the lifeline
closes, and the supervisor kills the program and its process group. It forwards SIGTERM to them. When the program ends,
the rest of its process group is killed too; only processes with a session of their own survive.

With `confine` the program runs as a user of its own (`{"user": UID, "hide": DIR, "show": DIR}`): it sees nothing of the
directory `hide`, the manager's data, but the directory `show` below it, and can gain no rights by running programs.

Standard library and `log_file` only: it is started once per Job and should cost next to nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from remuda.jobs import log_file

_LIFELINE = 0
_PIECE = 64 * 1024
_LAST_PIECES = 64  # limit of the output read after the program's end; processes that it left may write forever
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_CANNOT_START = 127


def main() -> NoReturn:
    order: dict[str, Any] = json.loads(sys.argv[1])
    output, into = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        _run_program(order, into, supervisor)
    os.close(into)
    _make_group_leader(child)
    sys.exit(_guard(child, output, log_file.LogWriter(Path(order["log"]))))


def _make_group_leader(child: int) -> None:
    """Make the child the leader of a process group. Both sides of the fork do it: neither can rely on the other."""
    try:
        os.setpgid(child, child)
    except OSError:
        pass  # it has become the program already


def _run_program(order: dict[str, Any], output: int, supervisor: int) -> NoReturn:
    """Set up the child process and execute the program."""
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if order.get("nice"):
            os.nice(order["nice"])
        if order.get("memory"):
            # The hard limit stays: the Job of a local driver raises the soft limit again for the hosts that it starts.
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            limit = order["memory"] if most == resource.RLIM_INFINITY else min(order["memory"], most)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold credentials
        if order.get("confine"):
            _confine(**order["confine"])
        _die_with_parent()  # after the change of user, which takes this back
        # The supervisor may have died before the prctl took effect. Then nobody would kill the program, so it is not
        # started.
        if os.getppid() == supervisor:
            os.execvp(order["command"][0], order["command"])  # noqa: S606
    except Exception as error:  # the log is the only place where this error can be seen
        why = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
        os.write(2, f"cannot start {order['command'][0]}: {why}\n".encode())
    finally:
        os._exit(_CANNOT_START)


def _confine(user: int, hide: str, show: str) -> None:
    """Become this user in a mount namespace of its own. Raises OSError."""
    folder = os.path.relpath(os.getcwd(), show)
    _call("unshare", _CLONE_NEWNS)
    # Without this, the mounts below would propagate to the namespace of the host.
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    # Open the directory before the tmpfs covers it: its path then leads to an empty file system.
    shown = os.open(show, os.O_RDONLY | os.O_DIRECTORY)
    _mount("remuda", hide, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=64k")
    os.umask(0o022)
    os.makedirs(show)
    _mount(f"/proc/self/fd/{shown}", show, None, _MS_BIND)
    os.close(shown)
    # The old working directory is hidden below the tmpfs; this is the same directory in the bind mount.
    os.chdir(os.path.join(show, folder))
    os.umask(0o077)
    # Groups before the user: after setresuid the process may not change its groups any more.
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def _call(function: str, *arguments: Any) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _guard(child: int, output: int, log: log_file.LogWriter) -> int:
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: _signal(child, signal.SIGTERM))
    poll = select.poll()
    for descriptor in (_LIFELINE, output, wakeup):
        poll.register(descriptor, select.POLLIN)
    while (
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):  # it may have ended before we listened
        ready = {descriptor for descriptor, _ in poll.poll()}
        if _LIFELINE in ready and not os.read(_LIFELINE, _PIECE):
            _signal(child, signal.SIGKILL)
            poll.unregister(_LIFELINE)
        if output in ready and not _copy(output, log):
            poll.unregister(output)
        if wakeup in ready:
            os.read(wakeup, _PIECE)
    return _end(child, output, log)


def _end(child: int, output: int, log: log_file.LogWriter) -> int:
    """Kill the rest of the group, then reap its leader: until then, no other process can get its number."""
    _signal(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.set_blocking(output, False)
    for _ in range(_LAST_PIECES):
        if not _copy(output, log):
            break
    log.end(log_file.stamp(time.time()))
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _copy(output: int, log: log_file.LogWriter) -> bool:
    """Copy output of the program to its log; return whether there may be more."""
    try:
        data = os.read(output, _PIECE)
    except BlockingIOError:
        return False
    log.write(data, log_file.stamp(time.time()))
    return bool(data)


def _signal(child: int, number: int) -> None:
    """Send a signal to the program and its process group."""
    try:
        os.killpg(child, number)
    except ProcessLookupError:
        pass
    except PermissionError:  # some of the group run as somebody else: at least the program itself
        os.kill(child, number)


if __name__ == "__main__":
    main()
