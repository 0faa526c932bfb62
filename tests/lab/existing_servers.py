"""A server somebody owns: a real SSH server in this process, on an address of its own, whose root is a directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

USER = "cowhand"


class ExistingServer:
    """Logins run their commands here, as this user, told of the root by REMUDA_HOST_ROOT."""

    def __init__(self, root: Path, address: str) -> None:
        self.root = root
        self.address = address
        self.port = 0
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.environment = {"PATH": os.environ["PATH"], "REMUDA_HOST_ROOT": str(root)}
        self.logins = 0
        self.login_says = ""  # before whatever it runs
        self.shell = ""  # what it runs instead
        self._listener: asyncssh.SSHAcceptor | None = None
        (root / "etc").mkdir(parents=True)
        (root / "etc" / "hostname").write_text(f"pet-{address}\n")

    async def start(self, authorized: asyncssh.SSHKey) -> None:
        keys = asyncssh.import_authorized_keys(authorized.export_public_key().decode())
        self._listener = await asyncssh.listen(
            self.address,
            self.port,
            server_host_keys=[self.host_key],
            authorized_client_keys=keys,
            process_factory=self._serve,
            encoding=None,
        )
        self.port = self._listener.get_port()

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()
            self._listener = None

    @property
    def name(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def public_key(self) -> str:
        return " ".join(self.host_key.export_public_key().decode().split()[:2])

    @property
    def claim(self) -> Path:
        return self.root / "etc" / "remuda" / "claim.json"

    def files(self) -> list[str]:
        """Everything there but what it came with."""
        found = (str(path.relative_to(self.root)) for path in self.root.rglob("*"))
        return sorted(name for name in found if name not in ("etc", "etc/hostname"))

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        self.logins += 1
        process.stdout.write(self.login_says.encode())
        child = await asyncio.create_subprocess_shell(
            self.shell or process.command or "sh",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        feeding = asyncio.create_task(_feed(process.stdin, child.stdin))
        await asyncio.gather(_copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr))
        feeding.cancel()
        process.exit(await child.wait())


async def _copy(source: Any, target: Any) -> None:
    """Without its end: that of one output would be the end of the other one too."""
    try:
        while content := await source.read(65536):
            target.write(content)
    except (OSError, asyncssh.Error):
        pass  # whoever was at the other end has gone


async def _feed(source: Any, target: Any) -> None:
    await _copy(source, target)
    try:
        target.write_eof()
    except (OSError, asyncssh.Error):
        pass


async def start_all(servers: Sequence[ExistingServer], authorized: asyncssh.SSHKey) -> None:
    await asyncio.gather(*(server.start(authorized) for server in servers))


async def stop_all(servers: Sequence[ExistingServer]) -> None:
    await asyncio.gather(*(server.stop() for server in servers))
