"""Shell on a server: with the system's ssh, which handles terminals best; if there is none, with asyncssh.

The private key is in a file that only its owner can read, and that is always removed when ssh ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from remuda.providers.machine.access import MachineLogin, NoAccess

_REACH_SECONDS = 5.0


def open_shell(door: MachineLogin, words: Sequence[str]) -> tuple[int, str]:
    """Run a command or a shell on the server; as with ssh, the remote shell parses the words.

    Return the exit code, and the content of known_hosts afterwards. Raises NoAccess.
    """
    address = _reachable(door)
    program = shutil.which("ssh")
    if program is None:
        return asyncio.run(_open_with_asyncssh(door, address, words)), ""
    with tempfile.TemporaryDirectory(prefix="remuda-ssh-") as folder:  # 0700
        key, known_hosts = Path(folder) / "id", Path(folder) / "known_hosts"
        _write(key, door.login.private_key)
        _write(known_hosts, door.known_hosts)
        with interrupts_are_for_the_child():
            arguments = _arguments(program, door, address, key, known_hosts, words)
            ended = subprocess.run(arguments, check=False)  # noqa: S603
        return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode, known_hosts.read_text()


def _arguments(
    program: str, door: MachineLogin, address: str, key: Path, known_hosts: Path, words: Sequence[str]
) -> list[str]:
    if not door.known_hosts:
        print("this server has no pinned host key: pinning the one it presents now", file=sys.stderr)
    # Ignore the user's own ssh settings, keys and known hosts: only the key and the host key of this Machine count.
    settings = {
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": os.devnull,
        "StrictHostKeyChecking": "yes" if door.known_hosts else "accept-new",
        "HashKnownHosts": "no",
        "UpdateHostKeys": "no",
        "PasswordAuthentication": "no",
        "ServerAliveInterval": "15",
        "LogLevel": "ERROR",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    place = ["-p", str(door.login.port), "-l", door.login.user, address]
    return [program, "-F", os.devnull, "-i", str(key), *options, *place, *(["--", " ".join(words)] if words else [])]


def _reachable(door: MachineLogin) -> str:
    """Return the first address that accepts a connection. Raises NoAccess."""
    why = ""
    for address in door.login.addresses:
        try:
            with socket.create_connection((address, door.login.port), timeout=_REACH_SECONDS):
                return address
        except OSError as error:
            why = f"{address} port {door.login.port}: {error.strerror or error}"
    raise NoAccess(f"cannot reach the server of {door.machine}: {why}")


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text if not text or text.endswith("\n") else f"{text}\n")


@contextmanager
def interrupts_are_for_the_child() -> Iterator[None]:
    """Leave Ctrl-C to the remote shell. A handler, not SIG_IGN, because the child would inherit SIG_IGN."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_device(descriptor: int) -> bool:
    """Return whether a descriptor is a character device such as /dev/null, which cannot be polled."""
    return stat.S_ISCHR(os.fstat(descriptor).st_mode)


async def _open_with_asyncssh(door: MachineLogin, address: str, words: Sequence[str]) -> int:
    import asyncssh
    import msgspec

    from remuda.providers.shared.drivers.spi import DriverError
    from remuda.providers.shared.jobs.ssh import connect

    if not door.known_hosts:
        raise NoAccess(
            "this server has no pinned host key, and pinning one needs the ssh program, which is not installed"
        )
    try:
        login = msgspec.structs.replace(door.login, addresses=[address])
        async with await connect(login, lambda text: print(text, file=sys.stderr)) as connection:
            terminal = os.environ.get("TERM") if sys.stdin.isatty() else None
            ended = await connection.run(
                " ".join(words) if words else None,
                stdin=sys.stdin if terminal or not _is_device(sys.stdin.fileno()) else asyncssh.DEVNULL,
                stdout=sys.stdout,
                stderr=sys.stderr,
                term_type=terminal,
            )
    except (DriverError, asyncssh.Error, OSError) as error:
        raise NoAccess(str(error)) from None
    return ended.exit_status if ended.exit_status is not None else 255
