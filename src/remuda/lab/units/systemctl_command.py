"""`systemctl` on a host that is a folder: the verbs, options, output and exit codes that scripts of plans use.

It records which units are wanted, starts keepers and signals them; the keepers do the lasting work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from remuda.agent import program
from remuda.lab.units import processes
from remuda.lab.units.directory import ANEW, NoSuchUnit, State, UnitDirectory, full
from remuda.lab.units.unitfile import BadUnit

_LOOK_SECONDS = 0.02
_KEEPER_SECONDS = 20.0
_NOT_ACTIVE, _NOT_THERE, _UNKNOWN = 3, 5, 4
_LAST = 4096
_QUIET = ("--quiet", "-q")
_WITHOUT_MEANING = ("--no-pager", "--system", "--force", "-f", "--full", "-l", "--no-legend", "--runtime")


class UsageError(ValueError):
    """Invalid command line."""


class SystemctlOptions:
    def __init__(self, arguments: list[str]) -> None:
        self.block, self.now, self.quiet, self.value = True, False, False, False
        self.properties: list[str] = []
        words: list[str] = []
        left = list(arguments)
        while left:
            each = left.pop(0)
            if each in ("-p", "--property"):
                each = f"--property={left.pop(0) if left else ''}"
            if each.startswith(("--property=", "-p")):
                self.properties += each.partition("=")[2].split(",") if "=" in each else each[2:].split(",")
            elif each == "--no-block":
                self.block = False
            elif each == "--now":
                self.now = True
            elif each in _QUIET:
                self.quiet = True
            elif each == "--value":
                self.value = True
            elif each.startswith("-") and each not in _WITHOUT_MEANING:
                raise UsageError(f"unknown option {each}")
            elif not each.startswith("-"):
                words.append(each)
        if not words:
            raise UsageError("no verb given")
        self.verb, self.names = words[0], [full(word) for word in words[1:]]


def main(root: str, arguments: list[str]) -> int:
    try:
        options = SystemctlOptions(arguments)
        verb = _VERBS.get(options.verb)
        if verb is None:
            raise UsageError(f"unknown verb {options.verb}")
        if not options.names and options.verb not in _FOR_ALL:
            raise UsageError(f"{options.verb}: no unit given")
        return verb(Systemctl(UnitDirectory(root)), options)
    except NoSuchUnit as error:
        sys.stderr.write(f"Failed to do it: {error}\n")
        return _NOT_THERE
    except (UsageError, BadUnit, OSError) as error:
        sys.stderr.write(f"systemctl: {error}\n")
        return 1


class Systemctl:
    def __init__(self, place: UnitDirectory) -> None:
        self._place = place

    # -- start and stop ----------------------------------------------------------------------------------------------

    def start(self, options: SystemctlOptions) -> int:
        return max(self._begin(name, options, anew=False) for name in options.names)

    def restart(self, options: SystemctlOptions) -> int:
        return max(self._begin(name, options, anew=True) for name in options.names)

    def try_restart(self, options: SystemctlOptions) -> int:
        running = [name for name in options.names if self._place.wants(name)]
        return max((self._begin(name, options, anew=True) for name in running), default=0)

    def resume(self, options: SystemctlOptions) -> int:
        """Start missing keepers of wanted units. Unlike `start`, it never starts a unit that was stopped."""
        for name in options.names:
            if self._place.wants(name) and not self._place.has_keeper(name):
                self._keeper(name)
        return 0

    def stop(self, options: SystemctlOptions) -> int:
        missing = [name for name in options.names if not self._place.has(name) and not self._place.wants(name)]
        for name in options.names:
            # Record this before the signal: the agent's watch would otherwise replace the keeper that ends.
            self._place.want_no_more(name)
            self._signal_keeper(name, signal.SIGTERM)
        while options.block and any(self._place.has_keeper(name) for name in options.names):
            time.sleep(_LOOK_SECONDS)
        for name in missing:
            sys.stderr.write(f"Failed to stop {name}: Unit {name} not loaded.\n")
        return _NOT_THERE if missing else 0

    def _begin(self, name: str, options: SystemctlOptions, *, anew: bool) -> int:
        self._place.unit(name)
        self._place.want(name)
        # Read the count before the signal, so that a restart that finishes at once is not missed.
        before = self._place.said(name).runs
        ran = self._signal_keeper(name, ANEW if anew else 0)
        if not ran:
            self._keeper(name)
        if not options.block:
            return 0
        while True:
            state = self._place.state(name)
            if state.state == "active" and (state.runs > before or not (anew and ran)):
                return 0
            if not self._place.has_keeper(name):
                return self._has_failed(name, self._place.state(name))
            if state.restarts and state.result and state.runs > before:
                return self._has_failed(name, state)
            time.sleep(_LOOK_SECONDS)

    def _has_failed(self, name: str, state: State) -> int:
        if state.state == "inactive" and not state.result:
            return 0  # a oneshot unit that has finished
        sys.stderr.write(f"Job for {name} failed: {state.result}. See {self._place.log(name)}\n")
        return 1

    def _signal_keeper(self, name: str, number: int) -> bool:
        """Signal the keeper of a running unit, and return whether it runs. A killed keeper is replaced first."""
        if not self._place.has_keeper(name):
            if not self._place.said(name).program_lives:
                return False
            self._keeper(name)
        until = time.monotonic() + _KEEPER_SECONDS
        while self._place.has_keeper(name) and time.monotonic() < until:
            said = self._place.said(name)
            if processes.lives(said.keeper, said.keeper_started):
                return processes.send(said.keeper, said.keeper_started, number) if number else True
            time.sleep(_LOOK_SECONDS)
        return False

    def _keeper(self, name: str) -> None:
        """Start a keeper that outlives this program and does not use its output."""
        with open(self._place.log("units.service"), "ab") as written:
            started = subprocess.Popen(  # noqa: S603
                program.command(program.own_path(), "keep", "--root", self._place.root, name),
                cwd="/",
                env=program.environment(self._place.environment()),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        until = time.monotonic() + _KEEPER_SECONDS
        while not self._place.has_keeper(name) and started.poll() is None:
            if time.monotonic() > until:
                raise OSError(f"the keeper of {name} did not start")
            time.sleep(_LOOK_SECONDS)

    # -- enable and disable ------------------------------------------------------------------------------------------

    def enable(self, options: SystemctlOptions) -> int:
        for name in options.names:
            self._place.enable(name)
        return self.start(options) if options.now else 0

    def disable(self, options: SystemctlOptions) -> int:
        for name in options.names:
            self._place.disable(name)
        return self.stop(options) if options.now else 0

    def reset_failed(self, options: SystemctlOptions) -> int:
        for name in options.names:
            self._place.forget(name)
        return 0

    def nothing(self, options: SystemctlOptions) -> int:
        """Do nothing: unit files are read whenever a unit is started."""
        return 0

    # -- state -------------------------------------------------------------------------------------------------------

    def is_active(self, options: SystemctlOptions) -> int:
        return self._print_states(
            options, [self._place.state(name).state for name in options.names], "active", _NOT_ACTIVE
        )

    def is_failed(self, options: SystemctlOptions) -> int:
        return self._print_states(options, [self._place.state(name).state for name in options.names], "failed", 1)

    def is_enabled(self, options: SystemctlOptions) -> int:
        enabled = self._place.enabled()
        words = ["enabled" if name in enabled else "disabled" for name in options.names]
        return self._print_states(options, words, "enabled", 1)

    def _print_states(self, options: SystemctlOptions, words: list[str], wanted: str, otherwise: int) -> int:
        if not options.quiet:
            print("\n".join(words))
        return 0 if wanted in words else otherwise

    def show(self, options: SystemctlOptions) -> int:
        for name in options.names:
            for key, value in self._facts(name).items():
                if not options.properties or key in options.properties:
                    print(value if options.value else f"{key}={value}")
        return 0

    def _facts(self, name: str) -> dict[str, str]:
        state = self._place.state(name)
        return {
            "Id": name,
            "LoadState": "loaded" if self._place.has(name) else "not-found",
            "ActiveState": state.state,
            "SubState": {"active": "running", "inactive": "dead"}.get(state.state, state.state),
            "MainPID": str(state.pid),
            "NRestarts": str(state.restarts),
            "Result": state.result or "success",
            "UnitFileState": "enabled" if name in self._place.enabled() else "disabled",
        }

    def status(self, options: SystemctlOptions) -> int:
        for name in options.names:
            if not self._place.has(name):
                sys.stderr.write(f"Unit {name} could not be found.\n")
                return _UNKNOWN
            for key, value in self._facts(name).items():
                print(f"{key}: {value}")
            path = self._place.log(name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    file.seek(max(0, os.stat(path).st_size - _LAST))
                    print(file.read().decode("utf-8", "replace"))
        active = all(self._place.state(name).state == "active" for name in options.names)
        return 0 if active else _NOT_ACTIVE


_FOR_ALL = ("daemon-reload", "daemon-reexec", "reset-failed")
_VERBS: dict[str, Callable[[Systemctl, SystemctlOptions], int]] = {
    "start": Systemctl.start,
    "stop": Systemctl.stop,
    "restart": Systemctl.restart,
    "try-restart": Systemctl.try_restart,
    "resume": Systemctl.resume,  # the agent's own verb
    "reload-or-restart": Systemctl.restart,
    "enable": Systemctl.enable,
    "disable": Systemctl.disable,
    "is-active": Systemctl.is_active,
    "is-failed": Systemctl.is_failed,
    "is-enabled": Systemctl.is_enabled,
    "reset-failed": Systemctl.reset_failed,
    "daemon-reload": Systemctl.nothing,
    "daemon-reexec": Systemctl.nothing,
    "show": Systemctl.show,
    "status": Systemctl.status,
}
