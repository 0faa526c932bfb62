"""Telling systemd that the node is up, where systemd asked to be told."""

from __future__ import annotations

import os
import socket


def ready() -> None:
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.connect("\0" + path[1:] if path.startswith("@") else path)
            channel.sendall(b"READY=1")
        except OSError:
            pass  # whoever asked is gone
