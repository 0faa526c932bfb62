"""Serve artefacts to nodes: GET /artefacts/<distro>/<version>/<arch>/<name>, and NAME.sha256 beside it.

Requests need no authentication: the files are public programs, and nodes know the expected checksums from their plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from remuda.kube.web import TEXT_HEADERS, Request, Response, Result, header_block, text
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.shared.file_responses import missing, streamed

PREFIX = "/artefacts/"

_SUM = ".sha256"
_WORDS = 4


class ArtefactFiles:
    def __init__(self, artefacts: Artefacts) -> None:
        self._artefacts = artefacts

    def serve(self, request: Request) -> Result | Awaitable[Result]:
        if request.method not in ("GET", "HEAD"):
            return Response(
                405, b"only GET and HEAD are allowed here\n", TEXT_HEADERS + header_block([("Allow", "GET, HEAD")])
            )
        words = request.path.removeprefix(PREFIX).split("/")
        return self._answer(request, *words) if len(words) == _WORDS else missing()

    async def _answer(self, request: Request, distro: str, version: str, arch: str, name: str) -> Result:
        found = await asyncio.to_thread(self._artefacts.checksum, distro, version, arch, name.removesuffix(_SUM))
        if found is None:
            return missing()
        if name.endswith(_SUM):
            return text(200, f"{found}  {name.removesuffix(_SUM)}\n")
        descriptor = await asyncio.to_thread(self._artefacts.open, distro, version, arch, name)
        return missing() if descriptor is None else streamed(request, descriptor, f'"{found}"')
