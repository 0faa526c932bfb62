"""A small HTTPS server whose answers a test decides."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]


Answer = tuple[int, Mapping[str, str], bytes]


@contextmanager
def serving(
    answer: Callable[[Asked], Answer],
    certificate: tuple[bytes, bytes] | None,
    folder: Path,
    *,
    address: str = "127.0.0.1",
    date: str = "",
    client_ca: bytes = b"",
) -> Iterator[int]:
    """The port. `certificate` is PEM of certificate and key; without it, plain HTTP."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, headers, content = answer(Asked("GET", self.path, dict(self.headers)))
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def date_time_string(self, timestamp: Any = None) -> str:
            return date or super().date_time_string(timestamp)

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    server = Quiet((address, 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        files = [folder / f"served-{server.server_port}-{part}.pem" for part in ("certificate", "key")]
        for path, content in zip(files, certificate, strict=True):
            path.write_bytes(content)
        context.load_cert_chain(*files)
        if client_ca:
            context.load_verify_locations(cadata=client_ca.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
