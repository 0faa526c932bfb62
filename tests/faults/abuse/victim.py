"""A server to be abused, and what must hold after each abuse: it answers at once, and its memory is bounded.

Other programs share the machine, so wall time proves nothing. The kernel counts how long each thread ran and how long
it waited for a processor: a request is judged by the processor time that the server used, and by the time in which the
server and its client both slept. The server's data is in memory where there is room, because others use the disk too.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab import Ours, Reply
from tests.lab.limits import LIMIT_SECONDS

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
_SMALL_REQUESTS_SECONDS = 2.0  # for three of them; a stalled server takes far longer
_MEMORY_DISK = Path("/dev/shm")
_DATA_BYTES = 2 << 30  # far more than the attacks make the server store
_TICKS = os.sysconf("SC_CLK_TCK")


class Victim(Ours):
    parent = _MEMORY_DISK if _MEMORY_DISK.is_dir() and shutil.disk_usage(_MEMORY_DISK).free > _DATA_BYTES else None

    def rss(self) -> float:
        """MB in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def is_well(self) -> None:
        """Reads and writes for others, soon."""
        assert self.process.poll() is None, self.log.read_text()
        with self.needs_at_most(_SMALL_REQUESTS_SECONDS):
            fresh = self.connect()
            fresh.request("GET", "/readyz")
            assert fresh.getresponse().read() == b"ok"
            fresh.close()
            made = self.http("POST", CONFIGMAPS, {"metadata": {"generateName": "well-"}})
            assert made.code == 201, made
            assert self.http("DELETE", f"{CONFIGMAPS}/{made.body['metadata']['name']}").code == 200

    @contextmanager
    def needs_at_most(self, seconds: float) -> Iterator[None]:
        """Fail if the server uses more processor time for these requests, or keeps them waiting longer without need.

        A request waits without need while neither the server nor this process runs or waits for a processor.
        """
        started, used, scheduled = time.monotonic(), self._processor_seconds(), self._scheduled_seconds()
        yield
        # Read in this order: what the processes do between the readings then counts as scheduled.
        took = time.monotonic() - started
        used, scheduled = self._processor_seconds() - used, self._scheduled_seconds() - scheduled
        waited = took - scheduled
        told = f"{took:.1f} s: {used:.1f} s of processor time, {waited:.1f} s without need of a processor"
        assert used < seconds, told
        assert waited < seconds, told

    def _processor_seconds(self) -> float:
        """Processor time of the server, since it started."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = fields[11:13]  # fields 14 and 15 of proc(5), counted from behind the name
        return (int(user) + int(system)) / _TICKS

    def _scheduled_seconds(self) -> float:
        """Seconds that threads of the server and of this process have run or waited for a processor."""
        return _scheduled(self.process.pid) + _scheduled(os.getpid())

    def dial(self, *, tls: bool = True, admin: bool = True, timeout: float = LIMIT_SECONDS) -> socket.socket:
        raw = socket.create_connection(self._address, timeout=timeout)
        if not tls:
            return raw
        context = self._admin if admin else self._anonymous
        return context.wrap_socket(raw, server_hostname=self._address[0])

    def speak(self, data: bytes) -> Reply | None:
        """The answer to raw bytes, or None when there was none before the connection closed."""
        with self.dial() as wire:
            return answer(wire, data)


def _scheduled(pid: int) -> float:
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            ran, waited, _ = (task / "schedstat").read_text().split()
        except OSError:  # the thread has ended
            continue
        total += int(ran) + int(waited)
    return total / 1e9


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
