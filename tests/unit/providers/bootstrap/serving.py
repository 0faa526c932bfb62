"""The endpoints served for real, over TLS, with a registrar that a test scripts."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from remuda.apiserver.http.listener import Listener
from remuda.kube import certificates
from remuda.kube.http.tls import client_context, load_pair
from remuda.providers.bootstrap.endpoints import Endpoints
from remuda.providers.bootstrap.registration import ConnectionInfo, HostRefused
from remuda.providers.shared.manager_address import Site
from tests.lab.limits import LIMIT_SECONDS

TOKEN = "machine.abc.s3cret"


class Registrar:
    """Knows one token. `refusals` are said first, one at a time."""

    def __init__(self) -> None:
        self.refusals: list[HostRefused] = []
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    async def connect(self, token: str, headers: Mapping[str, str]) -> ConnectionInfo:
        self.asked.append((token, headers))
        if self.refusals:
            raise self.refusals.pop(0)
        if token != TOKEN:
            raise HostRefused(401, "this token is not known here")
        return ConnectionInfo("kubeconfig text", "default", "a-machine-plan")


class Served:
    def __init__(self, site: Site, registrar: Registrar, listener: Listener) -> None:
        self.on_denied: list[tuple[str, int, str]] = []  # path, code, why
        self.site = site
        self.registrar = registrar
        self.listener = listener
        self.context = client_context(ca_pem=site.ca_pem)

    async def ask(self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
        """Raw, so that no library tidies up a path."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port, ssl=self.context)
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode())
        content = await asyncio.wait_for(reader.read(), LIMIT_SECONDS)
        writer.close()
        return Answer(content)


class Answer:
    def __init__(self, content: bytes) -> None:
        head, _, self.body = content.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        self.code = int(line.split()[1])
        self.headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        if self.headers.get("transfer-encoding") == "chunked":
            self.body = _unchunked(self.body)


def _unchunked(body: bytes) -> bytes:
    found = b""
    while True:
        size, _, rest = body.partition(b"\r\n")
        if int(size, 16) == 0:
            return found
        found, body = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]


@asynccontextmanager
async def serving(assets: Path | None = None, *, name: str = "127.0.0.1") -> AsyncIterator[Served]:
    now = datetime.now(UTC)
    ca_key, key = certificates.new_key(), certificates.new_key()
    authority = certificates.Authority(certificates.make_ca(ca_key, "test", 10, now), ca_key)
    certificate = authority.issue_server(key, [name], 5, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, certificates.certificate_pem(certificate), certificates.key_pem(key), "test")
    listener = Listener(lambda request: endpoints.serve(request))
    await listener.start("127.0.0.1", 0, context)
    site = Site(
        server_url=f"https://127.0.0.1:{listener.port}", ca_pem=certificates.certificate_pem(authority.certificate)
    )
    registrar = Registrar()
    served = Served(site, registrar, listener)
    endpoints = Endpoints(
        site, registrar, assets, lambda request, code, why: served.on_denied.append((request.path, code, why))
    )
    try:
        yield served
    finally:
        await listener.stop(LIMIT_SECONDS)


class Run:
    """A script that has ended."""

    def __init__(self, code: int, out: str) -> None:
        self.code = code
        self.out = out

    def __repr__(self) -> str:
        return f"<exit code {self.code}: {self.out}>"


async def run(script: str, folder: Path, *arguments: str, tools: str | None = None, **environment: str) -> Run:
    """With dash, the strictest shell there is, from its standard input as `curl … | sh` does."""
    shell = shutil.which("dash") or "/bin/sh"
    variables = {
        "PATH": tools or os.environ["PATH"],
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "REMUDA_HOST_ROOT": str(folder / "root"),
        "REMUDA_PATIENCE_SECONDS": "2",
        **environment,
    }
    process = await asyncio.create_subprocess_exec(
        shell,
        "-s",
        "-",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={name: value for name, value in variables.items() if value},
        cwd=folder,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(script.encode()), LIMIT_SECONDS)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return Run(process.returncode, out.decode())


def toolbox(folder: Path, *without: str) -> str:
    """A PATH with what every system has, but for some of it."""
    bin = folder / "bin"
    bin.mkdir()
    for name in TOOLS:
        found = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
        if name not in without and found is not None:
            (bin / name).symlink_to(found)
    return str(bin)


TOOLS: Sequence[str] = (
    *("awk", "cat", "chmod", "cp", "curl", "cut", "date", "dd", "env", "grep", "head", "id", "ip", "mkdir", "mktemp"),
    *("mv", "python3", "rm", "sed", "sha256sum", "sleep", "tail", "touch", "tr", "uname", "wc"),
)
