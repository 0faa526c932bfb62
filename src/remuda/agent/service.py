"""The agent as a service of systemd, and the script that takes it off again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from remuda.agent import program
from remuda.agent.layout import Layout


def systemctl(*arguments: str, check: bool = True) -> bool:
    """Run systemctl and return whether it succeeded. With `check`, a failure raises OSError with its error output."""
    done = subprocess.run(["systemctl", *arguments], capture_output=True, check=False)  # noqa: S603, S607
    if check and done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise OSError(f"systemctl {' '.join(arguments)} failed: {said}")
    return done.returncode == 0


def unit(place: Layout, environment: Mapping[str, str]) -> str:
    level = environment.get("CATTLE_AGENT_LOGLEVEL") or "info"
    command = " ".join(_quoted(word) for word in program.command(place.program, "run", *place.arguments()))
    return f"""[Unit]
Description=Remuda node agent
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
Restart=always
RestartSec=5s
StandardOutput=journal
StandardError=journal
EnvironmentFile=-/etc/default/remuda-agent
EnvironmentFile=-/etc/sysconfig/remuda-agent
EnvironmentFile=-{place.environment_file}
Environment=MALLOC_ARENA_MAX=2
Environment={_quoted(f"CATTLE_LOGLEVEL={level}")}
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""


def _quoted(word: str) -> str:
    if all(sign.isalnum() or sign in "/._-=:," for sign in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'


def environment_file(environment: Mapping[str, str]) -> str:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    lines = [f"{name}={_quoted(environment[name])}\n" for name in names if environment.get(name)]
    fallback = environment.get("CATTLE_AGENT_FALLBACK_PATH")
    return "".join(lines) + (f"PATH={_quoted(fallback)}\n" if fallback else "")


def uninstall_script(place: Layout) -> str:
    """Return the uninstall script, which contains the paths of this agent."""
    given = {
        "REMUDA_HOST_ROOT": place.root,
        "CATTLE_AGENT_CONFIG_DIR": place.etc[len(place.root) :],
        "CATTLE_AGENT_VAR_DIR": place.var[len(place.root) :],
        "CATTLE_AGENT_BIN_PREFIX": os.path.dirname(os.path.dirname(place.program))[len(place.root) :],
    }
    lines = [f"export {name}={_shell(value)}\n" for name, value in given.items() if value]
    command = " ".join(_shell(word) for word in program.command(place.program, "uninstall"))
    return "#!/bin/sh\n" + "".join(lines) + f"exec {command}\n"


def _shell(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
