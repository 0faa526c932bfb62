"""One way to talk to any API server: raw requests, raw answers, over TLS, one connection kept."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.lab.limits import LIMIT_SECONDS

_UNTIL_STOPPED_SECONDS = 15.0


class Reply:
    """What came back: code, headers, and the body, decoded when it looks like JSON (/openapi/v3 says it is text)."""

    def __init__(self, code: int, headers: http.client.HTTPMessage, content: bytes) -> None:
        self.code = code
        self.headers = headers
        self.content = content

    @property
    def body(self) -> Any:
        if "json" in (self.headers.get("Content-Type") or "") or self.content[:1] == b"{":
            return json.loads(self.content)
        return self.content.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<{self.code} {self.content[:2000]!r}>"


class Server:
    """A running API server, known by its kubeconfig."""

    name = "server"

    def __init__(self, kubeconfig: Path, *, answer_seconds: float = LIMIT_SECONDS) -> None:
        """`answer_seconds`: shorter for a server that may hang while its clients retry."""
        self.kubeconfig = kubeconfig
        self._answer_seconds = answer_seconds
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url: str = cluster["server"]
        self.ca_pem = base64.b64decode(cluster["certificate-authority-data"])
        address = urlsplit(self.url)
        self._address = (address.hostname or "127.0.0.1", address.port or 443)
        self._base = address.path.rstrip("/")  # of one that is reached through a proxy
        self._token: str | None = user.get("token")
        self._admin = self._context(user)
        self._anonymous = self._context({})
        self._kept: http.client.HTTPSConnection | None = None

    def _context(self, user: dict[str, str]) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca_pem.decode())
        if "client-certificate-data" in user:
            files = []
            for part in ("certificate", "key"):
                path = self.kubeconfig.with_name(f"lab-client-{part}.pem")
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(user[f"client-{part}-data"]))
                files.append(str(path))
            context.load_cert_chain(*files)
        return context

    def connect(self, *, admin: bool = True, timeout: float = 0.0) -> http.client.HTTPSConnection:
        context = self._admin if admin else self._anonymous
        seconds = timeout or self._answer_seconds
        connection = http.client.HTTPSConnection(*self._address, context=context, timeout=seconds)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        as_user: str = "",
        as_groups: tuple[str, ...] = (),
        token: str | None = None,
        admin: bool = True,
    ) -> Reply:
        """`body` is sent as it is when bytes or text, else as JSON. `as_user` impersonates; `token` (or admin=False)
        leaves the admin's certificate at home."""
        sent = _headers(headers or {}, as_user, as_groups, self._token if token is None and admin else token)
        path = self._base + path
        content = body if isinstance(body, bytes | str) or body is None else json.dumps(body)
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        if token is not None or not admin:
            return _exchange(self.connect(admin=False), method, path, content, sent)
        try:
            self._kept = self._kept or self.connect()
            return _exchange(self._kept, method, path, content, sent, keep=True)
        except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError):
            self._kept = None
            return _exchange(self.connect(), method, path, content, sent)

    def stream(
        self, path: str, *, timeout: float = LIMIT_SECONDS, headers: dict[str, str] | None = None
    ) -> Iterator[bytes]:
        """The lines of a watch as they come, until it ends or `timeout` seconds pass without one."""
        connection = self.connect(timeout=timeout)
        try:
            connection.request("GET", self._base + path, headers=_headers(headers or {}, "", (), self._token))
            response = connection.getresponse()
            while line := response.readline():
                yield line
        except TimeoutError:
            return
        finally:
            connection.close()

    def wait_until_ready(self, process: subprocess.Popen[Any], seconds: float, log: Path) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {process.returncode}:\n{tail(log)}")
            try:
                if self.http("GET", "/readyz").code == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} was not ready after {seconds} s:\n{tail(log)}")

    def stop(self) -> None:
        if self._kept is not None:
            self._kept.close()


def _headers(headers: dict[str, str], user: str, groups: tuple[str, ...], token: str | None) -> dict[str, str]:
    sent = {"Accept": "application/json", "User-Agent": "lab/1", **headers}
    if user:
        sent["Impersonate-User"] = user
    if groups:
        sent["Impersonate-Group"] = groups[0]
    if token:
        sent["Authorization"] = f"Bearer {token}"
    return sent


def _exchange(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    content: Any,
    headers: dict[str, str],
    *,
    keep: bool = False,
) -> Reply:
    try:
        connection.request(method, path, body=content, headers=headers)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        if not keep:
            connection.close()


def end(process: subprocess.Popen[Any], seconds: float = _UNTIL_STOPPED_SECONDS) -> None:
    """SIGTERM, then SIGKILL for what does not listen. Give more seconds where its last acts are judged."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
