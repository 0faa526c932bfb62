"""A real registry of images (Debian's docker-registry), over TLS by an authority of ours, for one user.

`interop/packages registry` installs it. A test that needs one which is not there skips and says so; in CI that is a
failure.
"""

from __future__ import annotations

import base64
import http.client
import json
import secrets
import shutil
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

from tests.lab.certificates import Authority, write
from tests.lab.children import die_with_parent
from tests.lab.images import MANIFEST, Image
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.missing import missing
from tests.lab.ports import free_port
from tests.lab.server import end, tail


def require_registry() -> str:
    absent = [program for program in ("docker-registry", "htpasswd") if shutil.which(program) is None]
    if absent:
        missing(f"no {' and '.join(absent)} here; install with: interop/packages registry")
    return shutil.which("docker-registry") or ""


class RealRegistry:
    """`auth` of its configuration, else one user by password."""

    def __init__(self, auth: dict[str, Any] | None = None) -> None:
        program = require_registry()
        self.folder = Path(tempfile.mkdtemp(prefix="remuda-lab-registry-"))
        self.username, self.password = "reader", secrets.token_urlsafe(12)
        self.authority = Authority("lab registry")
        certificate, key = self.authority.server("127.0.0.1")
        self.files = write(self.folder, ca=self.authority.pem, certificate=certificate, key=key)
        self.host = f"127.0.0.1:{free_port()}"
        self._trust = ssl.create_default_context(cadata=self.authority.pem.decode())
        self._log = self.folder / "registry.log"
        try:
            with self._log.open("wb") as log:
                self.process = subprocess.Popen(
                    [program, "serve", str(self._configured(auth))],
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    preexec_fn=die_with_parent,
                )
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _configured(self, auth: dict[str, Any] | None) -> Path:
        said = subprocess.run(
            ["htpasswd", "-n", "-B", "-i", self.username], input=self.password.encode(), capture_output=True, check=True
        )
        (self.folder / "users").write_bytes(said.stdout)
        config = {
            "version": "0.1",
            "log": {"accesslog": {"disabled": False}},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "data")}},
            "http": {
                "addr": self.host,
                "secret": secrets.token_hex(16),
                "tls": {"certificate": str(self.files["certificate"]), "key": str(self.files["key"])},
            },
            "auth": auth or {"htpasswd": {"realm": "lab", "path": str(self.folder / "users")}},
        }
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def _wait(self) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the registry ended with {self.process.returncode}:\n{tail(self._log)}")
            try:
                if self.ask("GET", "/v2/")[0] in (200, 401):
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the registry was not ready after {LIMIT_SECONDS} s:\n{tail(self._log)}")

    @property
    def said(self) -> str:
        """Its log."""
        return self._log.read_text(errors="replace")

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage]:
        pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        name, _, port = self.host.partition(":")
        connection = http.client.HTTPSConnection(name, int(port), context=self._trust, timeout=LIMIT_SECONDS)
        try:
            connection.request(method, path, body, {"Authorization": f"Basic {pair}", **(headers or {})})
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers
        finally:
            connection.close()

    def push(self, repository: str, image: Image, *tags: str, headers: dict[str, str] | None = None) -> None:
        """An image as `docker push` brings it: the blobs, then the manifest, by its digest and under its tags."""
        for digest, content in image.blobs.items():
            code, answer = self.ask("POST", f"/v2/{repository}/blobs/uploads/", headers=headers)
            assert code == 202, f"{code}\n{tail(self._log)}"
            place = urlsplit(answer["Location"])
            path = f"{place.path}?{place.query}&digest={quote(digest)}"
            sent = {"Content-Type": "application/octet-stream", **(headers or {})}
            code, _ = self.ask("PUT", path, content, sent)
            assert code == 201, f"{code}\n{tail(self._log)}"
        for name in (image.digest, *tags):
            self.push_manifest(repository, image.manifest, name, headers=headers)

    def push_manifest(
        self,
        repository: str,
        content: bytes,
        name: str,
        media_type: str = MANIFEST,
        headers: dict[str, str] | None = None,
    ) -> None:
        sent = {"Content-Type": media_type, **(headers or {})}
        code, _ = self.ask("PUT", f"/v2/{repository}/manifests/{name}", content, sent)
        assert code == 201, f"{code}\n{tail(self._log)}"

    def access(
        self, *, mirror_of: str = "", rewrite: dict[str, str] | None = None, before: tuple[str, ...] = ()
    ) -> str:
        """A registries.yaml that knows the authority and the password, and maybe that it mirrors another; `before` are
        addresses to be asked first."""
        auth = {"username": self.username, "password": self.password}
        document: dict[str, Any] = {"configs": {self.host: {"auth": auth, "tls": {"ca_file": str(self.files["ca"])}}}}
        if mirror_of:
            endpoints = [*before, f"https://{self.host}"]
            document["mirrors"] = {mirror_of: {"endpoint": endpoints, "rewrite": rewrite or {}}}
        return json.dumps(document)

    def stop(self) -> None:
        if hasattr(self, "process"):
            end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)
