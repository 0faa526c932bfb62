"""`remuda-agent install`: registers this host and starts the agent. Running it again keeps or renews what exists."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from remuda.agent import disk, interlock, layout, program, service, supervise
from remuda.agent.config import Config, ConfigError, render
from remuda.agent.registration import AgentRegistration, InstallError, flag, say, wanted

# system-agent's installer waits as long: 59 times 5 s.
_ACTIVE_SECONDS = 295.0


def install(environment: Mapping[str, str]) -> int:
    try:
        _Installation(environment).carry_out()
    except (InstallError, ConfigError) as error:
        say(f"failed: {error}")
        return 1
    except OSError as error:
        say(f"failed: {error.filename or 'a file or program of this host'}: {error.strerror or error}")
        return 1
    return 0


class _Installation:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._layout = layout.of(environment)
        self._wanted = wanted(environment)

    def carry_out(self) -> None:
        if os.geteuid() != 0 and not self._layout.root:
            raise InstallError("must run as root; repeat the command with sudo")
        if not program.own_path():
            raise InstallError("the agent must run from the single file it is delivered as")
        for folder in (self._layout.etc, self._layout.var, self._layout.interlock):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        pending = os.path.join(self._layout.interlock, interlock.PENDING)
        disk.write(pending, b"")
        try:
            # Register before anything is changed: if it fails, the present agent keeps running.
            info = self._register() if self._wanted.remote else None
            self._wait_for_plans()
            self._put(info)
            self._stop()
        finally:
            disk.remove(pending)
        # Start after `restart-pending` is removed: the new agent would wait for it.
        self._start()
        say("the agent is installed and running")

    def _register(self) -> bytes:
        return AgentRegistration(self._wanted, self._layout, self._environment).connection_info()

    def _wait_for_plans(self) -> None:
        """Wait until no plan is being applied, so that none is interrupted."""
        active = os.path.join(self._layout.interlock, interlock.ACTIVE)
        until = time.monotonic() + _ACTIVE_SECONDS
        printed = False
        while os.path.exists(active) and time.monotonic() < until and self._is_running():
            if not printed:
                say("waiting for the running plan to finish")
            printed = True
            time.sleep(1)

    def _is_running(self) -> bool:
        if self._layout.by_systemd:
            return service.systemctl("is-active", "--quiet", layout.UNIT, check=False)
        return bool(supervise.running(self._layout.var))

    def _put(self, info: bytes | None) -> None:
        place, var = self._layout, self._layout.var
        config = Config(
            work_directory=os.path.join(var, "work"),
            preserve_work_directory=flag(self._environment, "CATTLE_PRESERVE_WORKDIR", False),
            applied_plan_directory=os.path.join(var, "applied"),
            local_enabled=self._wanted.local,
            remote_enabled=self._wanted.remote,
            local_plan_directory=os.path.join(var, "plans"),
            connection_info_file=place.connection_file if info is not None else "",
            images_directory=os.path.join(var, "images"),
            agent_registries_file=os.path.join(place.etc, "registries.yaml"),
            interlock_directory=place.interlock,
            journal_file=os.path.join(var, "journal.json"),
            servers_directory=os.path.join(var, "servers.d"),
            instruction_timeout_seconds=self._wanted.instruction_timeout,
            supersede=flag(self._environment, "CATTLE_AGENT_SUPERSEDE", False),
        )
        disk.write(place.config_file, render(config).encode())
        if info is not None:
            disk.write(place.connection_file, info)
        os.makedirs(os.path.dirname(place.program), exist_ok=True)
        own = program.own_path()
        if own != os.path.abspath(place.program):
            disk.write(place.program, disk.read(own) or b"", 0o755)
        disk.write(place.uninstall_script, service.uninstall_script(place).encode(), 0o755)

    def _stop(self) -> None:
        if self._layout.by_systemd:
            service.systemctl("stop", layout.UNIT, check=False)
        supervise.stop(self._layout.var)

    def _start(self) -> None:
        place = self._layout
        if not place.by_systemd:
            supervise.start(place.program, place.var, place.arguments())
            return
        disk.write(place.environment_file, service.environment_file(self._environment).encode())
        disk.write(place.unit_file, service.unit(place, self._environment).encode(), 0o644)
        service.systemctl("daemon-reload")
        service.systemctl("enable", layout.UNIT)
        service.systemctl("restart", layout.UNIT)
