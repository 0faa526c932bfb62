"""HTTP handler that connects the tunnel's server to our HTTP front."""

from __future__ import annotations

from typing import Any

from remuda.kube.web import TEXT_HEADERS, Handler, Request, Response, Result, Upgrade, header_block
from remuda.tunnel.server import Asking, Refusal, Server


def tunnel_handler(server: Server) -> Handler:
    async def handle(request: Request) -> Result:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
        peer = request.peer
        answer = await server.admit(Asking(request.method, headers, peer.address, peer.certificate))
        if isinstance(answer, Refusal):
            return Response(answer.status, answer.text.encode(), TEXT_HEADERS + header_block(answer.headers))
        accept: Any = answer.accept
        return Upgrade(accept, header_block(answer.headers))

    return handle
