"""Programs of this machine that the driver runs (ip, tar, systemd-nspawn), and the check that they are installed.

The error output of a program becomes the message that users read.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE

from remuda.providers.shared.drivers.spi import BadOptions, DriverError

# Not the caller's: a Job's environment holds what no host has to see.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_PROGRAMS = ("systemd-nspawn", "ip", "mount", "unshare", "tar")


async def run(program: str, *arguments: str) -> str:
    """Run a program and return its output. Raises DriverError with its error message."""
    code, printed, complaint = await attempt(program, *arguments)
    if code != 0:
        raise DriverError(f"{program} {' '.join(arguments)}: {complaint or f'ended with {code}'}")
    return printed


async def attempt(program: str, *arguments: str) -> tuple[int, str, str]:
    """Run a program and return its exit code, stdout and stderr."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=ENVIRONMENT
        )
    except FileNotFoundError:
        raise DriverError(f"program {program} is not installed on this machine") from None
    try:
        printed, complaint = await process.communicate()
    except asyncio.CancelledError:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return process.returncode or 0, printed.decode(errors="replace"), complaint.decode(errors="replace").strip()


def missing(*programs: str) -> list[str]:
    """Return the programs that are not installed on this machine."""
    folders = ENVIRONMENT["PATH"].split(":")
    return [name for name in programs if not any(os.access(f"{folder}/{name}", os.X_OK) for folder in folders)]


def judge_machine() -> None:
    """Check that this machine can run hosts. Raises BadOptions."""
    if sys.platform != "linux":
        raise BadOptions("hosts in systemd-nspawn need Linux")
    if os.geteuid() != 0:
        raise BadOptions("hosts in systemd-nspawn need root: run Remuda as root, or use the driver process")
    if absent := missing(*_PROGRAMS):
        raise BadOptions(f"this machine has no {', '.join(absent)}; install systemd-container and iproute2")
