"""SSH access to servers: addresses, trusted host keys, and the output of scripts.

A server must show one of its known host keys. Without any, the first key that it shows is accepted and, once the server
is claimed, pinned.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence

import asyncssh
import msgspec

from remuda.providers.shared.drivers.spi import BadOptions, DriverError

_CONNECT_SECONDS = 15.0
_MOST_SAID = 500

# Whatever shell the user has. Where the root is a directory, it is the user's own.
_AS_ROOT = """sh -c 'if [ "$(id -u)" = 0 ] || [ -n "$REMUDA_HOST_ROOT" ]; then sh -s; else sudo -n sh -s; fi'"""


class SshAddress(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 22 else f"{host}:{self.port}"

    @property
    def is_ip(self) -> bool:
        return _is_ip(self.host)


class Login(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    key: asyncssh.SSHKey
    patience: float

    def __repr__(self) -> str:
        return f"<Login {self.user}>"


class SshResult(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    output: str
    complaints: str
    host_key: str  # that was shown


def place(text: str, port: int, option: str) -> SshAddress:
    """host, host:port, address, [address], [address]:port. Raises BadOptions."""
    host, found = text.strip(), ""
    if host.startswith("["):
        host, end, found = host[1:].partition("]")
        found = found.removeprefix(":")
        host = host if end and _is_ip(host) else ""
    elif host.count(":") == 1:
        host, _, found = host.partition(":")
    number = int(found) if found.isascii() and found.isdigit() else port if not found else 0
    if not host or any(letter.isspace() or letter in "/@" for letter in host) or not 0 < number < 65536:
        raise BadOptions(f"{option}: {text!r} is not a server; write host, host:port or [IPv6 address]:port")
    if ":" in host and not _is_ip(host):
        raise BadOptions(f"{option}: {text!r} is not an address")
    return SshAddress(host, number)


def host_key(text: str) -> tuple[str, asyncssh.SSHKey]:
    """The address it is for, or "" for all; and the key. Raises BadOptions."""
    words = text.split()
    for address, rest in (("", words), (words[0] if words else "", words[1:])):
        try:
            return address, asyncssh.import_public_key(" ".join(rest[:2]))
        except (asyncssh.KeyImportError, ValueError):
            continue
    raise BadOptions(
        f"hostKeys: {text[:40]!r} is not a public key in OpenSSH format, with an optional address in front"
    )


def private_key(text: str) -> asyncssh.SSHKey:
    """Raises BadOptions, in which there is nothing of the key."""
    if not text.strip():
        raise BadOptions("privateKey: required; it may come from the credential")
    try:
        return asyncssh.import_private_key(text)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError) as error:
        if "assphrase" in str(error):
            raise BadOptions("privateKey: the key has a passphrase; use a key without one") from None
        raise BadOptions("privateKey: not a private key in OpenSSH or PEM format") from None


async def run(
    place: SshAddress, login: Login, trusted: Sequence[asyncssh.SSHKey] | None, script: str, seconds: float
) -> SshResult:
    """Run a script as root. `trusted` None: accept any host key. Raises DriverError if it could not be run."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS + seconds):
            connection = await asyncssh.connect(
                place.host,
                place.port,
                username=login.user,
                client_keys=[login.key],
                known_hosts=None if trusted is None else (list(trusted), [], []),
                agent_path=None,
                config=[],
                preferred_auth="publickey",
                connect_timeout=min(_CONNECT_SECONDS, login.patience),
                login_timeout=min(_CONNECT_SECONDS, login.patience),
            )
            async with connection:
                shown = connection.get_server_host_key()
                done = await connection.run(_AS_ROOT, input=script, encoding="utf-8", errors="replace")
    except (OSError, asyncssh.Error, TimeoutError) as error:
        raise DriverError(f"cannot connect to {place}: {_words(error, login, trusted)}") from None
    key = shown.export_public_key("openssh").decode().strip() if shown is not None else ""
    code = done.exit_status if done.exit_status is not None else 255
    output, complaints = str(done.stdout or ""), str(done.stderr or "")
    return SshResult(code=code, output=output, complaints=complaints, host_key=" ".join(key.split()[:2]))


def last_output(answer: SshResult) -> str:
    lines = [line.strip() for line in f"{answer.output}\n{answer.complaints}".splitlines() if line.strip()][-3:]
    return " / ".join(lines)[-_MOST_SAID:] or f"exit code {answer.code}"


def _words(error: Exception, login: Login, trusted: Sequence[asyncssh.SSHKey] | None) -> str:
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return "its host key is not one of hostKeys; it may be another server"
    if isinstance(error, asyncssh.PermissionDenied):
        return f"it rejects the key for user {login.user} (sshUser, privateKey)"
    if isinstance(error, asyncssh.ConnectionLost):
        return "the connection was lost"
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, asyncssh.Error):
        return error.reason
    return getattr(error, "strerror", "") or str(error)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
