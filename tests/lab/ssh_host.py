"""A real SSH server in this process, with one user and one key, that runs real commands on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncssh

from remuda.providers.shared.jobs.login import Login


class Host:
    """An sshd with one user and one key."""

    def __init__(self) -> None:
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.more_host_keys: list[asyncssh.SSHKey] = []
        self.port = 0

    @property
    def public(self) -> str:
        return " ".join(self.host_key.export_public_key().decode().split()[:2])

    def login(self, **changed: Any) -> Login:
        usual = {
            "addresses": ["127.0.0.1"],
            "port": self.port,
            "user": "root",
            "private_key": self.key.export_private_key().decode(),
            "host_keys": [self.public],
        }
        return Login(**{**usual, **changed})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        key = self.key

        class Server(asyncssh.SSHServer):
            def begin_auth(self, username: str) -> bool:
                return True

            def public_key_auth_supported(self) -> bool:
                return True

            def validate_public_key(self, username: str, offered: asyncssh.SSHKey) -> bool:
                return username == "root" and offered.public_data == key.public_data

        server = await asyncssh.create_server(
            Server,
            "127.0.0.1",
            self.port,
            server_host_keys=[*self.more_host_keys, self.host_key],
            process_factory=_execute,
            encoding=None,
        )
        self.port = server.get_port()
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()


# Whoever runs tests may do all that is needed here, root or not.
_AS_ANYBODY = """sudo() { shift; "$@"; }
"""


async def _execute(process: Any) -> None:
    child = await asyncio.create_subprocess_shell(
        _AS_ANYBODY + process.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await child.communicate(await process.stdin.read())
    process.stdout.write(out)
    process.exit(child.returncode)
