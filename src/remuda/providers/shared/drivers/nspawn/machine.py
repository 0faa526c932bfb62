"""Requirements that this machine must meet to run hosts."""

from __future__ import annotations

import os
import sys

from remuda.providers.shared.drivers.nspawn.commands import missing
from remuda.providers.shared.drivers.spi import BadOptions

_PROGRAMS = ("systemd-nspawn", "ip", "mount", "unshare", "tar")


def judge_machine() -> None:
    """Raises BadOptions."""
    if sys.platform != "linux":
        raise BadOptions("hosts in systemd-nspawn need Linux")
    if os.geteuid() != 0:
        raise BadOptions("hosts in systemd-nspawn need root: run Remuda as root, or use the driver process")
    if absent := missing(*_PROGRAMS):
        raise BadOptions(f"this machine has no {', '.join(absent)}; install systemd-container and iproute2")
