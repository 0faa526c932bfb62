"""The agent as a service of systemd, and its removal: the script and the command `remuda-agent uninstall`.

The command removes the service, its files, the program, and the tunnel service, which is useless without it. Other
software that plans have installed stays.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

from remuda.agent import disk, layout, program, supervise
from remuda.agent.layout import AgentLayout

if TYPE_CHECKING:
    from remuda.agent.folder_host import Units


def systemctl(*arguments: str, check: bool = True) -> bool:
    """Run systemctl and return whether it succeeded. With `check`, a failure raises OSError with its error output."""
    done = subprocess.run(["systemctl", *arguments], capture_output=True, check=False)  # noqa: S603, S607
    if check and done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise OSError(f"systemctl {' '.join(arguments)} failed: {said}")
    return done.returncode == 0


def unit(place: AgentLayout, environment: Mapping[str, str]) -> str:
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
    # In commands of units, systemd expands % and $ also within quotes.
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'


def environment_file(environment: Mapping[str, str]) -> str:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    lines = [f"{name}={_quoted_value(environment[name])}\n" for name in names if environment.get(name)]
    fallback = environment.get("CATTLE_AGENT_FALLBACK_PATH")
    return "".join(lines) + (f"PATH={_quoted_value(fallback)}\n" if fallback else "")


def _quoted_value(value: str) -> str:
    """Quote a value of an EnvironmentFile. Unlike in units, systemd expands nothing there: a % stays as it is."""
    for sign in ("\\", '"', "`", "$"):
        value = value.replace(sign, f"\\{sign}")
    return f'"{value}"'


def uninstall_script(place: AgentLayout) -> str:
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


def uninstall(environment: Mapping[str, str], units: Units | None = None) -> int:
    place = layout.of(environment)
    if os.geteuid() != 0 and not place.root:
        print("remuda-agent: must run as root; repeat the command with sudo", flush=True)
        return 1
    if place.by_systemd:
        systemctl("disable", "--now", layout.UNIT, check=False)
    supervise.stop(place.var)
    _end_tunnel(place, units)  # after the agent, which would start it again
    if not place.root:
        disk.remove(place.unit_file)
        disk.remove(place.environment_file)
    if place.by_systemd:
        systemctl("daemon-reload", check=False)
        systemctl("reset-failed", layout.UNIT, check=False)
    for folder in (place.var, place.etc):
        shutil.rmtree(folder, ignore_errors=True)
    if place.root:
        disk.remove(layout.systemctl(place.root))
        if units is not None:
            units.forget(place.root)
    for path in (place.program, f"{place.program}.trial", place.uninstall_script):
        disk.remove(path)
    print("remuda-agent: removed; software that plans have installed on this host stays", flush=True)
    return 0


def _end_tunnel(place: AgentLayout, units: Units | None) -> None:
    """Remove the tunnel's service, and the folder with its token, whose path only the unit file contains."""
    text = (disk.read(place.tunnel_unit_file) or b"").decode("utf-8", "replace")
    if not text:
        return
    words = ["disable", "--now", layout.TUNNEL_UNIT]
    if place.root and units is not None:
        units.systemctl(place.root, words)
    elif place.by_systemd:
        systemctl(*words, check=False)
    for path in (place.tunnel_unit_file, f"{place.tunnel_unit_file}.env"):
        disk.remove(path)
    found = re.search(r'--config "(/.+)/config\.json"', text)
    if found:
        shutil.rmtree(found.group(1), ignore_errors=True)
