"""Tokens of a server: read from its configuration or created once, and the files in which users find them."""

from __future__ import annotations

import secrets
from pathlib import Path

from remuda.lab.nano import tokens
from remuda.lab.nano.configuration import Configuration, FatalError
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.layout import NanoLayout, read_or_none, write_file
from remuda.lab.nano.supervisor import SupervisorCredentials
from remuda.lab.nano.tokens import BadToken, JoinToken


def configured(configuration: Configuration, host: NanoHost, key: str) -> JoinToken | None:
    """Return `token` or `agent-token`, given directly or in a file. Raise FatalError."""
    text = configuration.text(key)
    if not text and (file := configuration.text(f"{key}-file")):
        try:
            text = host.path(file).read_text()
        except OSError as error:
            raise FatalError(f"{key}-file: {file} cannot be read: {error.strerror}") from None
    if not text:
        return None
    try:
        return tokens.parse(text)
    except BadToken as bad:
        raise FatalError(f"{key}: {bad}") from None


def of_server(configuration: Configuration, host: NanoHost, layout: NanoLayout) -> SupervisorCredentials:
    """Return the tokens of a server. Raise FatalError."""
    server = configured(configuration, host, "token") or _remembered(layout)
    if server is None:
        server = JoinToken(secrets.token_hex(16))
    agent = configured(configuration, host, "agent-token")
    return SupervisorCredentials(server.password, agent.password if agent is not None else server.password)


def write(layout: NanoLayout, credentials: SupervisorCredentials, ca_pem: bytes) -> None:
    """Write the token files as K3s does: one for servers, which agents may use too unless they have their own."""
    _write(layout.server / "token", tokens.full(tokens.SERVER, credentials.server, ca_pem))
    _link(layout.server / "node-token", "token")
    agent = layout.server / "agent-token"
    if credentials.agent == credentials.server:
        _link(agent, "token")
    else:
        if agent.is_symlink():
            agent.unlink()
        _write(agent, tokens.full(tokens.NODE, credentials.agent, ca_pem))
    program = layout.flavour.name
    lines = [
        f"{credentials.agent},node,node,{program}:agent",
        f"{credentials.server},server,server,{program}:server",
    ]
    _write(layout.credentials / "passwd", "\n".join(lines))


def _remembered(layout: NanoLayout) -> JoinToken | None:
    known = read_or_none(layout.server / "token")
    return tokens.parse(known.decode()) if known is not None else None


def _write(path: Path, text: str) -> None:
    content = text.encode() + b"\n"
    if read_or_none(path) != content:
        write_file(path, content)


def _link(path: Path, to: str) -> None:
    if path.is_symlink() and str(path.readlink()) == to:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(to)
