"""Ports that tests give to programs, and ports at which nobody listens.

`free_port` takes ports below the range from which the kernel numbers connections, and listeners that ask for any port.
A port of that range can be given to another program between the moment a test chooses it and the moment its own program
listens.
"""

from __future__ import annotations

import fcntl
import functools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PORTS = range(20_000, 30_000)  # no program of the suites has a fixed port here; node ports begin at 30000
_taken: set[int] = set()  # by this process, whose own locks do not conflict with each other


def free_port() -> int:
    """Return a port that nobody uses, and that no other test process is given while this process lives."""
    # Not the global generator: tests seed it, and all workers with the same seed.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if port in _taken:
            continue
        try:
            # A byte for each port. The lock lasts until this process ends.
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            with socket.socket() as probe:
                probe.bind(("", port))  # at all addresses: servers for nspawn hosts listen at others than loopback
        except OSError:
            continue
        _taken.add(port)
        return port
    raise RuntimeError(f"all ports from {_PORTS.start} to {_PORTS.stop - 1} are in use")


@functools.cache
def _locks() -> int:
    """Open the lock file. It stays open: closing any descriptor of it would end all locks of this process."""
    path = Path(tempfile.gettempdir()) / f"remuda-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def closed_port() -> Iterator[int]:
    """Hold a port at which nobody listens: connections are refused, and no other program can get it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
