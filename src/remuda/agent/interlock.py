"""Lock files that coordinate the agent with its installer.

`restart-pending` asks the agent not to begin a plan, because it is about to be restarted; after five minutes it is
ignored. `applyinator-active` (upstream's name) means that a plan is being applied.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from remuda.agent import disk, log
from remuda.agent.formats import seconds_of, unix_date

PENDING = "restart-pending"
ACTIVE = "applyinator-active"
_MAX_PENDING_SECONDS = 300.0


def seconds_to_wait(folder: str) -> float:
    """Return the seconds to wait before a plan may begin; 0: now."""
    if not folder:
        return 0.0
    path = os.path.join(folder, PENDING)
    content = disk.read(path)
    if content is None:
        return 0.0
    now, since = time.time(), seconds_of(content.decode("ascii", "replace"))
    # Installers create the file empty. The agent writes the time at which it first sees it.
    if since is None or since > now:
        disk.write(path, unix_date(now).encode())
        return _MAX_PENDING_SECONDS
    left = since + _MAX_PENDING_SECONDS - now
    if left <= 0:
        log.warning(f"ignoring the request to restart, {path}: it is older than {_MAX_PENDING_SECONDS:.0f} s")
        disk.remove(path)
        return 0.0
    return left


@contextlib.contextmanager
def active(folder: str) -> Iterator[None]:
    if not folder:
        yield
        return
    path = os.path.join(folder, ACTIVE)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    disk.write(path, unix_date(time.time()).encode(), durable=False)
    try:
        yield
    finally:
        disk.remove(path)


def clean(folder: str) -> None:
    """Remove the file of the previous agent: one that has just started applies nothing."""
    if folder:
        disk.remove(os.path.join(folder, ACTIVE))
