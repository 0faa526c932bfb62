"""`remuda-agent uninstall`: removes the service, its files, the program, and the tunnel service, which is useless
without it. Other software that plans have installed stays."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping

from remuda.agent import disk, layout, service, supervise


def uninstall(environment: Mapping[str, str]) -> int:
    place = layout.of(environment)
    if os.geteuid() != 0 and not place.root:
        print("remuda-agent: must run as root; repeat the command with sudo", flush=True)
        return 1
    if place.by_systemd:
        service.systemctl("disable", "--now", layout.UNIT, check=False)
    supervise.stop(place.var)
    _end_tunnel(place)  # after the agent, which would start it again
    if not place.root:
        disk.remove(place.unit_file)
        disk.remove(place.environment_file)
    if place.by_systemd:
        service.systemctl("daemon-reload", check=False)
        service.systemctl("reset-failed", layout.UNIT, check=False)
    for folder in (place.var, place.etc):
        shutil.rmtree(folder, ignore_errors=True)
    if place.root:
        from remuda.agent.units import watch

        disk.remove(layout.systemctl(place.root))
        watch.forget(place.root)
    for path in (place.program, f"{place.program}.trial", place.uninstall_script):
        disk.remove(path)
    print("remuda-agent: removed; software that plans have installed on this host stays", flush=True)
    return 0


def _end_tunnel(place: layout.Layout) -> None:
    """Remove the tunnel's service, and the folder with its token, whose path only the unit file contains."""
    unit = (disk.read(place.tunnel_unit_file) or b"").decode("utf-8", "replace")
    if not unit:
        return
    words = ["disable", "--now", layout.TUNNEL_UNIT]
    if place.root:
        from remuda.agent.units import systemctl

        systemctl.main(place.root, words)
    elif place.by_systemd:
        service.systemctl(*words, check=False)
    for path in (place.tunnel_unit_file, f"{place.tunnel_unit_file}.env"):
        disk.remove(path)
    found = re.search(r'--config "(/.+)/config\.json"', unit)
    if found:
        shutil.rmtree(found.group(1), ignore_errors=True)
