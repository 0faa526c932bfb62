"""The bootstrap script over SSH: for servers that take no user data.

Host keys are pinned. Where the driver knows them they come from it; else the first one seen is pinned, before anything
is sent, and that is said. A server whose key is another one is not spoken to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import asyncssh
import msgspec

from remuda.providers.shared.drivers.spi import DriverError
from remuda.providers.shared.jobs.login import Login

Say = Callable[[str], None]

_CONNECT_SECONDS = 10.0
_UP_SECONDS = 600.0  # until sshd answers
_LOGIN_SECONDS = 120.0  # from its first answer until the key is accepted: images install it late
_RETRY_SECONDS = 2.0
_SCRIPT_SECONDS = 1500.0
_ALIVE_SECONDS = 15
_LAST_LINES = 15
_LONGEST_LINE = 4096
_PIECE = 16 * 1024

# The script is a file of its own, so that nothing it starts can read the rest of it from standard input.
_RUN = """umask 077; f=$(mktemp) || exit 1; trap 'rm -f "$f"' EXIT; cat > "$f" || exit 1
if [ "$(id -u)" = 0 ]; then sh "$f" </dev/null; else sudo -n sh "$f" </dev/null; fi"""


async def run_script(login: Login, script: bytes, say: Say, pin: Callable[[Login], Awaitable[None]]) -> None:
    """`pin` is called with the host key in it when none was known. Raises DriverError with the script's last words."""
    connection = await connect(login, say)
    try:
        if not login.host_keys:
            await _pin(connection, login, say, pin)
        async with asyncio.timeout(_SCRIPT_SECONDS):
            code, last = await _run(connection, script, say)
    except TimeoutError:
        raise DriverError(f"the bootstrap script did not finish within {_SCRIPT_SECONDS:.0f} s") from None
    except (asyncssh.Error, OSError) as error:
        raise DriverError(f"the connection was lost while the bootstrap script ran: {_words(error)}") from None
    finally:
        connection.abort()
    if code:
        raise DriverError(f"the bootstrap script failed with exit code {code}:\n" + "\n".join(last))


async def connect(login: Login, say: Say) -> asyncssh.SSHClientConnection:
    """Connect once sshd is up and accepts the key. Raises DriverError."""
    if not login.addresses:
        raise DriverError("the server has no address")
    options = _options(login)
    loop = asyncio.get_running_loop()
    deadline, seen, told = loop.time() + _UP_SECONDS, False, ""
    while True:
        for address in login.addresses:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncssh.connect(address, login.port, options=options)
            # No retry: the script carries a bootstrap token, which no other server may get.
            except asyncssh.HostKeyNotVerifiable:
                raise DriverError(
                    f"the host key of {address} does not match the pinned key: it may be another server"
                ) from None
            except asyncssh.PermissionDenied:
                why = f"{address} rejects the SSH key of user {login.user}"
                if not seen:
                    seen, deadline = True, min(deadline, loop.time() + _LOGIN_SECONDS)
            except (asyncssh.Error, OSError) as error:
                why = f"{address} port {login.port}: {_words(error)}"
        if loop.time() > deadline:
            raise DriverError(f"cannot connect to the server over SSH: {why}")
        if why != told:
            say(f"waiting for SSH: {why}")
            told = why
        await asyncio.sleep(_RETRY_SECONDS)


def _options(login: Login) -> asyncssh.SSHClientConnectionOptions:
    try:
        key = asyncssh.import_private_key(login.private_key)
        pinned = [asyncssh.import_public_key(text) for text in login.host_keys]
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise DriverError(f"cannot read the SSH key: {error}") from None
    return asyncssh.SSHClientConnectionOptions(
        username=login.user,
        client_keys=[key],
        # None accepts any host key. `run_script` then pins the key before it sends the script.
        known_hosts=(pinned, [], []) if pinned else None,
        # Neither the SSH configuration nor the agent of the manager's user may influence the connection.
        config=None,
        agent_path=None,
        preferred_auth="publickey",
        keepalive_interval=_ALIVE_SECONDS,
        connect_timeout=_CONNECT_SECONDS,
    )


async def _pin(
    connection: asyncssh.SSHClientConnection, login: Login, say: Say, pin: Callable[[Login], Awaitable[None]]
) -> None:
    key = connection.get_server_host_key()
    if key is None:
        raise DriverError("the server has no host key")
    text = " ".join(key.export_public_key().decode().split()[:2])
    say(f"pinned the server's host key {key.get_fingerprint()}, seen for the first time")
    await pin(msgspec.structs.replace(login, host_keys=[text]))


async def _run(connection: asyncssh.SSHClientConnection, script: bytes, say: Say) -> tuple[int, Sequence[str]]:
    last: deque[str] = deque(maxlen=_LAST_LINES)
    async with connection.create_process(_RUN, encoding=None, stderr=asyncssh.STDOUT) as process:
        process.stdin.write(script)
        process.stdin.write_eof()
        pending = b""
        while piece := await process.stdout.read(_PIECE):
            *lines, pending = (pending + piece).split(b"\n")
            if len(pending) > _LONGEST_LINE:
                lines, pending = [*lines, pending], b""
            for line in lines:
                _heard(line, last, say)
        if pending:
            _heard(pending, last, say)
        ended = await process.wait()
    if ended.exit_status is None:
        raise DriverError(f"the bootstrap script was killed by {ended.exit_signal or ['the server']}")
    return ended.exit_status, last


def _heard(line: bytes, last: deque[str], say: Say) -> None:
    text = line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
    last.append(text)
    say(text)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return str(error) or type(error).__name__
