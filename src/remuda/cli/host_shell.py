"""Shell on a host that is a directory of this machine: the host's root as working directory, and its environment.

Nothing isolates such a host, so the shell is an ordinary process of this user. Like all processes with the host's
environment it counts as one of the host, and ends with the host.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from remuda.cli.ssh_client import interrupts_are_for_the_child
from remuda.providers.machine.access import LocalHost, NoAccess
from remuda.providers.shared.drivers.process.host import Details, ProcessHost
from remuda.providers.shared.drivers.spi import TAG_MACHINE

_TERMINAL = ("TERM", "COLORTERM", "LINES", "COLUMNS")


def open_shell(found: LocalHost, words: Sequence[str]) -> int:
    """Run a command or a shell on the host; as with ssh, a shell parses the words. Return the exit code. Raises
    NoAccess."""
    host = ProcessHost(found.directory)
    variables = host.environment(_details(host, found))
    variables["PATH"] = f"{host.root}/usr/local/bin:{variables['PATH']}"  # its systemctl is there
    variables |= {name: os.environ[name] for name in _TERMINAL if name in os.environ}
    command = ["/bin/sh", "-c", " ".join(words)] if words else ["/bin/sh", "-i"]
    with interrupts_are_for_the_child():
        ended = subprocess.run(command, cwd=host.root, env=variables, check=False)  # noqa: S603
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


def _details(host: ProcessHost, found: LocalHost) -> Details:
    """Return the host's details. The path comes from a Secret that other users may write: the directory must be a host
    of this machine's name, and belong to this user. Raises NoAccess."""
    elsewhere = (
        f"the host of {found.machine} is the directory {found.directory} of the manager's machine: run this command "
        "there, as the user that runs the manager"
    )
    try:
        details = host.details()
        if details is None or host.root.stat().st_uid != os.geteuid():
            raise NoAccess(elsewhere)
    except OSError:
        raise NoAccess(elsewhere) from None
    if details.tags.get(TAG_MACHINE) != str(found.machine):
        raise NoAccess(f"{found.directory} is the host of another machine: {details.tags.get(TAG_MACHINE)}")
    return details
