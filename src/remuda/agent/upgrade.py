"""Self-upgrade: the agent replaces itself by the version that its manager serves.

At its start and about every six hours it compares its own checksum with that of the manager's file. It downloads a new
version over the same verified connection as everything else, verifies the checksum, tries it (`version` must work),
replaces the old file, and executes it in the same process. It never does this while a part of a plan is running.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import ssl
import subprocess
import sys
import threading

from remuda.agent import connection, disk, log, program, web
from remuda.agent.config import Config
from remuda.agent.follow import Follower

ASSET = "/assets/remuda-agent.pyz"
_PERIOD_SECONDS = 6 * 3600.0
_FIRST_SECONDS = 1.0
_RETRY_SECONDS = 600.0
_MOST = 32 << 20


def watch(config: Config, follower: Follower, stop: threading.Event) -> None:
    path = program.own_path()
    if not path:
        return
    threading.Thread(target=_watch, args=(config, follower, stop, path), name="upgrade", daemon=True).start()


def _watch(config: Config, follower: Follower, stop: threading.Event, path: str) -> None:
    pause = random.uniform(0, _FIRST_SECONDS)  # noqa: S311
    while not stop.wait(pause):
        try:
            found = look(config, path)
            if found is not None:
                follower.exchange(lambda found=found: exchange(path, found))  # type: ignore[misc]
            pause = _PERIOD_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311
        except Exception as error:
            log.warning(f"cannot check for a newer agent: {error}; retrying")
            pause = _RETRY_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311


def look(config: Config, path: str) -> bytes | None:
    """Return the manager's agent, if it differs from this one."""
    identity = connection.load(config.connection_info_file, config.servers_directory)
    trust = web.context(identity.ca_pem)
    own = hashlib.sha256(disk.read(path) or b"").hexdigest()
    troubles = []
    for server in identity.servers:
        try:
            return _look_at(server, trust, own)
        except (web.ServerUnreachable, ValueError) as error:
            troubles.append(str(error))
    raise ValueError("; ".join(troubles))


def _look_at(server: str, trust: ssl.SSLContext, own: str) -> bytes | None:
    answer = web.get(f"{server}{ASSET}.sha256", trust, {}, seconds=30, most=4096)
    if answer.code in (403, 404):
        return None  # a manager that serves no such agent
    if answer.code != 200:
        raise ValueError(f"{server} answers {answer.code}")
    wanted = (answer.content.decode("ascii", "replace").split() or [""])[0]
    if not re.fullmatch("[0-9a-f]{64}", wanted):
        raise ValueError(f"{server} serves an invalid checksum")
    if own == wanted:
        return None
    answer = web.get(f"{server}{ASSET}", trust, {}, seconds=120, most=_MOST)
    if answer.code != 200:
        raise ValueError(f"{server} answers {answer.code}")
    if hashlib.sha256(answer.content).hexdigest() != wanted:
        raise ValueError(f"{server} serves an agent that does not match its checksum")
    return answer.content


def exchange(path: str, content: bytes) -> None:
    """Replace this program by the new one, and run it. Returns only if the new one does not work."""
    trial = f"{path}.trial"
    try:
        disk.write(trial, content, 0o755)
        # Run the new program once: one that does not run on this host could not replace itself again.
        tried = subprocess.run(  # noqa: S603
            program.command(trial, "version"), capture_output=True, timeout=60, check=False
        )
        if tried.returncode != 0:
            log.error("the newer agent does not run on this host; keeping this one")
            return
        os.replace(trial, path)
        disk.sync_folder(os.path.dirname(path))
    except (OSError, subprocess.SubprocessError) as error:
        log.error(f"cannot install the newer agent: {error}; keeping this one")
        return
    finally:
        disk.remove(trial)
    log.info("restarting as the newer agent")
    # The pid stays the same, so neither systemd nor the supervisor sees an end.
    os.execv(sys.executable, program.command(path, *sys.argv[1:]))  # noqa: S606
