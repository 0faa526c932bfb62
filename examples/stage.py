"""What both halves of the tour stand on: programs as child processes, a client for any kubeconfig, and lines on paper.

Only the standard library and PyYAML are used, so that what is shown is what any client sees.
"""

from __future__ import annotations

import atexit
import base64
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Json = dict[str, Any]

TERMINAL = sys.stdout.isatty()
BOLD, DIM, GREEN, PLAIN = ("\033[1m", "\033[2m", "\033[32m", "\033[0m") if TERMINAL else ("", "", "", "")

REMUDA = ("-m", "remuda.cli.main")
_PATIENCE_SECONDS = 60


def step(title: str) -> None:
    print(f"\n{BOLD}{title}{PLAIN}", flush=True)


def show(text: str) -> None:
    print(f"  {GREEN}✓{PLAIN} {text}", flush=True)


class Program:
    """A Python program as a child process that has said its first line."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        atexit.register(self._process.kill)  # should the tour fail, nothing of it stays
        assert self._process.stdout is not None
        self.ready_line = self._process.stdout.readline().strip()
        if not self.ready_line:
            raise SystemExit(f"{' '.join(arguments)} did not start")

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> int:
        self._process.terminate()
        return self._process.wait(timeout=20)


class Api:
    """A Kubernetes API as its kubeconfig describes it, over one connection that is made again when it breaks."""

    def __init__(self, config: Json) -> None:
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._address = urlsplit(cluster["server"]).netloc
        self._tls = ssl.create_default_context(cadata=_text(cluster["certificate-authority-data"]))
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_text(_text(user["client-certificate-data"]) + _text(user["client-key-data"]))
            self._tls.load_cert_chain(pair)
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, context=self._tls, timeout=10)

    @classmethod
    def at(cls, data_dir: Path) -> Api:
        return cls(yaml.safe_load((data_dir / "admin.kubeconfig").read_text()))

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, {"Content-Type": content_type})
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = self._connect()
            raise
        if answer.headers.get_content_type() != "application/json":  # a path nobody serves (yet) is told in plain text
            return {"code": answer.status, "message": content.decode()}
        found: Json = json.loads(content)
        return found

    def wait_for(self, path: str, done: Callable[[Json], object]) -> Json:
        return wait(lambda: self.call("GET", path), done, path)


def wait(look: Callable[[], Json], done: Callable[[Json], object], what: str) -> Json:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not done(found := look()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}: {found}")
        time.sleep(0.05)
    return found


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()
