"""What a manager tells of the tunnels that nodes have opened to it, by its metrics."""

from __future__ import annotations

import re
import urllib.request

from tests.lab.limits import LIMIT_SECONDS

_LINE = re.compile(r'^session_server_total_(\w+)\{clientkey="([^"]+)".*\} (\S+)$', re.MULTILINE)


class Tunnels:
    """Of the manager whose health is told at this port (`--health-listen`). A tunnel is called `cluster id:machine`."""

    def __init__(self, health: int) -> None:
        self._url = f"http://127.0.0.1:{health}/metrics"

    def open(self) -> dict[str, int]:
        """How many there are of each."""
        said = self._said()
        ended = said.get("remove_websocket_session", {})
        began = said.get("add_websocket_session", {})
        return {name: number for name in began if (number := began[name] - ended.get(name, 0))}

    def received(self) -> dict[str, int]:
        """Bytes that have come through each, since the manager runs."""
        return self._said().get("receive_bytes", {})

    def _said(self) -> dict[str, dict[str, int]]:
        """By what is counted and by tunnel, all at one moment."""
        with urllib.request.urlopen(self._url, timeout=LIMIT_SECONDS) as answer:
            text = answer.read().decode()
        found: dict[str, dict[str, int]] = {}
        for what, name, number in _LINE.findall(text):
            found.setdefault(what, {})[name] = int(float(number))
        return found
