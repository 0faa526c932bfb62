"""Programs of this machine that do the work: ip, tar, systemd-nspawn. What they complain of is what users read."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE

from remuda.providers.shared.drivers.spi import DriverError

# Not the caller's: a Job's environment holds what no host has to see.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


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
