"""An HTTPS server with the files of releases, as a publisher has them; it can break off in the middle of a file."""

from __future__ import annotations

import hashlib
import http.server
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from tests.lab.certificates import Authority, write

_PIECE = 64 * 1024


class ReleaseServer:
    """Files below a folder: <version>/<name>. `ca` is the certificate authority that signed its certificate."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.break_off_after: dict[str, int] = {}  # name → bytes; once
        self.requests: list[tuple[str, str, str]] = []  # method, path, Range
        authority = Authority("releases")
        certificate, key = authority.server(address)
        folder.mkdir(parents=True, exist_ok=True)
        files = write(folder, ca=authority.pem, certificate=certificate, key=key)
        self.ca = files["ca"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files["certificate"], files["key"])
        self._server = http.server.ThreadingHTTPServer((address, 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{address}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def release(self, version: str, arch: str, **files: Path | bytes) -> dict[str, str]:
        """Publish a release, with its list of checksums. Returns the checksums by file."""
        place = self.folder / version
        place.mkdir(parents=True, exist_ok=True)
        sums = {}
        for name, content in files.items():
            target = place / name
            if isinstance(content, Path):
                target.symlink_to(content)
            else:
                target.write_bytes(content)
            with target.open("rb") as file:
                sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
        (place / f"sha256sum-{arch}.txt").write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
        return sums

    def channels(self, version: str, distro: str = "k3s") -> str:
        """Return a file of channels that names this server and one version as stable."""
        minor = version.rpartition(".")[0]
        return (
            f"distributions:\n  {distro}:\n    download: {self.url}/{{version}}\n"
            f"    channels: {{stable: {version}, latest: {version}, {minor}: {version}}}\n"
        )

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _answer(self, *, body: bool) -> None:
                path, wanted = unquote(self.path).lstrip("/"), self.headers.get("Range", "")
                outer.requests.append((self.command, path, wanted))
                file = outer.folder / path
                if not file.is_file() or file.parent.parent != outer.folder:
                    self.send_error(404)
                    return
                match = re.fullmatch(r"bytes=(\d+)-", wanted)
                start, size = int(match[1]) if match else 0, file.stat().st_size
                if match and start >= size:
                    self.send_error(416)
                    return
                self.send_response(206 if match else 200)
                self.send_header("Content-Length", str(size - start))
                self.end_headers()
                if body:
                    self._send(file, start, outer.break_off_after.pop(file.name, size))

            def _send(self, path: Path, start: int, end: int) -> None:
                with path.open("rb") as file:
                    file.seek(start)
                    while (left := end - file.tell()) > 0 and (piece := file.read(min(left, _PIECE))):
                        self.wfile.write(piece)
                self.close_connection = self.close_connection or end < path.stat().st_size

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    @contextmanager
    def running(self) -> Iterator[ReleaseServer]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
