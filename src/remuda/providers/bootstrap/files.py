"""Files for hosts: the agent that is part of this program, and the files of a directory.

Only files directly in that directory are served. Each file has its checksum beside it, as NAME.sha256.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
from pathlib import Path

from remuda.kube.web import Request, Response, Result, header_block, text
from remuda.providers.bootstrap import assets, script
from remuda.providers.shared.file_responses import BINARY, missing, streamed

AGENT = "remuda-agent.pyz"
UNINSTALL = "system-agent-uninstall.sh"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_SUM = ".sha256"
_TEXT = ("Content-Type", "text/plain; charset=utf-8")

_Version = tuple[int, int, int]  # inode, time of change, size


class Files:
    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._sums: dict[str, tuple[_Version, str]] = {}

    async def serve(self, request: Request, name: str) -> Result:
        if not _NAME.fullmatch(name):
            return missing()
        if name.removesuffix(_SUM) in (AGENT, UNINSTALL):
            return await asyncio.to_thread(_own, request, name)
        found = await asyncio.to_thread(self._open, name)
        if found is not None:
            descriptor, version = found
            return streamed(request, descriptor, f'"{version[0]:x}-{version[1]:x}-{version[2]:x}"')
        if name.endswith(_SUM):
            value = await asyncio.to_thread(self._sum, name.removesuffix(_SUM))
            if value:
                return text(200, f"{value}  {name.removesuffix(_SUM)}\n")
        return missing()

    def _open(self, name: str) -> tuple[int, _Version] | None:
        """Return a descriptor, which the caller closes. Only plain files are opened: a pipe would never end."""
        if self._directory is None:
            return None
        try:
            descriptor = os.open(self._directory / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
        return descriptor, (status.st_ino, status.st_mtime_ns, status.st_size)

    def _sum(self, name: str) -> str:
        found = self._open(name)
        if found is None:
            return ""
        descriptor, version = found
        with os.fdopen(descriptor, "rb") as file:
            known = self._sums.get(name)
            if known is not None and known[0] == version:
                return known[1]
            value = hashlib.file_digest(file, "sha256").hexdigest()
        self._sums[name] = (version, value)
        return value


def _own(request: Request, name: str) -> Response:
    content = assets.agent_zipapp() if name.startswith(AGENT) else script.uninstall()
    value = hashlib.sha256(content).hexdigest()
    if name.endswith(_SUM):
        return text(200, f"{value}  {name.removesuffix(_SUM)}\n")
    tag = f'"{value}"'
    headers = header_block([BINARY if name == AGENT else _TEXT, ("ETag", tag)])
    if request.header(b"if-none-match") == tag:
        return Response(304, b"", headers)
    return Response(200, content, headers)
