"""`python -m bench.steady.tunnels FOLDER`: the tunnels of all servers of a fleet, each a thread with the real client.

What is dialled as a host's loopback leads to the API of that host's cluster.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench.steady.world import DATA, Host, read
from remuda.tunnel.allow import Allow
from remuda.tunnel.client import TunnelClient, TunnelSettings

_STACK = 256 * 1024
_COME_WITHIN_SECONDS = 10.0
_PATH = "/v3/connect"


def main() -> int:
    folder = Path(sys.argv[1])
    known = read(folder)
    pem = (folder / DATA / "pki" / "ca.crt").read_text()
    url = f"wss://{urlsplit(known.url).netloc}{_PATH}"
    threading.stack_size(_STACK)
    for host in known.hosts:
        if host.tunnel:
            threading.Thread(target=_keep, args=(_settings(url, pem, host),), daemon=True).start()
    print("started", flush=True)
    threading.Event().wait()
    return 0


def _settings(url: str, pem: str, host: Host) -> TunnelSettings:
    proof = ("Authorization", f"Bearer {host.tunnel}")
    return TunnelSettings((url,), pem, (proof,), allow=Allow(("tcp/127.0.0.1:6443",), host.address))


def _keep(settings: TunnelSettings) -> None:
    time.sleep(random.uniform(0, _COME_WITHIN_SECONDS))
    TunnelClient(lambda: settings).run()


if __name__ == "__main__":
    sys.exit(main())
