"""`remuda-agent run`: the daemon. Only one runs on a host."""

from __future__ import annotations

import fcntl
import os
import signal
import ssl
import threading
from typing import TYPE_CHECKING, Any

from remuda.agent import apply, connection, interlock, log, upgrade
from remuda.agent.config import Config, ConfigError, load
from remuda.agent.follow import Follower
from remuda.agent.kube import Api, trust_of
from remuda.agent.program import Signals

if TYPE_CHECKING:
    from remuda.agent.folder_host import Units


def run(path: str, root: str, address: str, units: Units | None = None) -> int:
    log.level(os.environ.get("CATTLE_LOGLEVEL") or os.environ.get("CATTLE_AGENT_LOGLEVEL") or "info")
    try:
        config = load(path, root=root, address=address)
        lock = _alone(config)
        if config.remote_enabled:
            connection.load(config.connection_info_file)
    except (ConfigError, OSError, ValueError) as error:
        log.error(str(error))
        return 1
    with lock:
        apply.clean(config)
        interlock.clean(config.interlock_directory)
        _serve(config, units)
    return 0


def _alone(config: Config) -> Any:
    """Lock the agent's folder: two agents would run every plan twice."""
    folder = os.path.dirname(config.journal_file)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = open(os.path.join(folder, "agent.lock"), "w")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigError(f"another agent is running with {folder}; exiting") from None
    return lock


def _serve(config: Config, units: Units | None) -> None:
    stop = threading.Event()
    follower: Follower | None = None
    arrivals = Signals(signal.SIGTERM, signal.SIGINT)

    def end() -> None:
        arrivals.wait()
        stop.set()
        if follower is not None:
            follower.stop()

    if config.remote_enabled:
        follower = Follower(config, _Connector(config))
    threading.Thread(target=end, name="signals", daemon=True).start()
    if config.root and units is not None:
        units.watch(config.root, config.address, stop)
    local = _local(config, stop) if config.local_enabled else None
    if follower is not None:
        if config.upgrade:
            upgrade.watch(config, follower, stop)
        log.info("following the plan Secret")
        follower.follow()
    else:
        log.info(f"following the plans below {config.local_plan_directory}")
        while not stop.wait(3600):
            pass
    if local is not None:
        local.join(10)
    log.info("stopped")


class _Connector:
    """Factory of API clients by the current connection files; the clients share a TLS context, which is large."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._identity: connection.AgentConnection | None = None
        self._trust: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def __call__(self) -> Api:
        with self._lock:
            identity = connection.load(self._config.connection_info_file, self._config.servers_directory)
            if identity != self._identity or self._trust is None:
                self._identity, self._trust = identity, trust_of(identity)
            return Api(identity, self._trust)


def _local(config: Config, stop: threading.Event) -> threading.Thread:
    from remuda.agent.local import follow

    thread = threading.Thread(target=follow, args=(config, stop), name="local", daemon=True)
    thread.start()
    return thread
