"""A server to be abused, and what must hold after each abuse: it answers at once, and its memory is bounded."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from pathlib import Path

from tests.lab import Ours, Reply

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
_QUICKLY_SECONDS = 2.0  # of a machine that does other things too; a stalled server takes far longer


class Victim(Ours):
    def rss(self) -> float:
        """MB in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def is_well(self) -> None:
        """Reads and writes for others, soon."""
        assert self.process.poll() is None, self.log.read_text()
        started = time.monotonic()
        fresh = self.connect(timeout=10)
        fresh.request("GET", "/readyz")
        assert fresh.getresponse().read() == b"ok"
        fresh.close()
        made = self.http("POST", CONFIGMAPS, {"metadata": {"generateName": "well-"}})
        assert made.code == 201, made
        assert self.http("DELETE", f"{CONFIGMAPS}/{made.body['metadata']['name']}").code == 200
        took = time.monotonic() - started
        assert took < _QUICKLY_SECONDS, f"{took:.1f} s for three small requests"

    def dial(self, *, tls: bool = True, admin: bool = True, timeout: float = 10) -> socket.socket:
        raw = socket.create_connection(self._address, timeout=timeout)
        if not tls:
            return raw
        context = self._admin if admin else self._anonymous
        return context.wrap_socket(raw, server_hostname=self._address[0])

    def speak(self, data: bytes, *, timeout: float = 10) -> Reply | None:
        """The answer to raw bytes, or None when there was none before the connection closed."""
        with self.dial(timeout=timeout) as wire:
            return answer(wire, data)


def answer(wire: socket.socket, data: bytes) -> Reply | None:
    """A server may answer and close before it has read everything: what it said is still there to be read."""
    try:
        wire.sendall(data)
    except (ConnectionError, ssl.SSLError):
        pass
    response = http.client.HTTPResponse(wire)
    try:
        response.begin()
        return Reply(response.status, response.headers, response.read())
    except (http.client.HTTPException, ConnectionError, ssl.SSLError):
        return None
    finally:
        response.close()
