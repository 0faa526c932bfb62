"""`python -m bench.tunnel.herd URL CA PREFIX COUNT`: many of our clients, each a thread with a key of its own.

They are as hosts run them, with their back-off and their answer to a server that asks them to come later.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from remuda.tunnel.client import TunnelClient, TunnelSettings

_STACK = 256 * 1024


def main() -> None:
    url, authority, prefix, count = sys.argv[1:]
    pem = Path(authority).read_text()
    threading.stack_size(_STACK)
    threads = []
    for number in range(int(count)):
        settings = TunnelSettings((url,), pem, (("X-Tunnel-ID", f"{prefix}-{number}"),))
        client = TunnelClient(lambda settings=settings: settings)
        threads.append(threading.Thread(target=client.run, daemon=True))
    for thread in threads:
        thread.start()
    print("started", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
