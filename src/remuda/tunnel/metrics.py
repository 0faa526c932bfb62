"""Metrics of the tunnel, under remotedialer's names, so that dashboards made for it work.

Each scrape adds up the counters of the sessions, so that counting costs nothing while bytes flow. Upstream's label with
the dialled address is left out, because its number of values has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_HELP = {
    "add_websocket_session": "Sessions that began",
    "remove_websocket_session": "Sessions that ended",
    "add_connections": "Streams that began",
    "remove_connections": "Streams that ended",
    "transmit_bytes": "Bytes of data sent",
    "transmit_error_bytes": "Bytes of errors sent",
    "receive_bytes": "Bytes of data received",
}
NAMES = tuple(_HELP)


class Counts:
    """Counters of one client key, over all its sessions."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = dict.fromkeys(NAMES, 0)

    def add(self, other: dict[str, int]) -> None:
        for name, value in other.items():
            self.values[name] += value


class TunnelMetrics(Collector):
    """`current` gives the counts of each client key, those of running sessions included."""

    def __init__(self, current: Callable[[], Iterator[tuple[str, dict[str, int]]]]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        # Not as counters: the library would append `_total` to upstream's names.
        families = {name: Metric(f"session_server_total_{name}", text, "unknown") for name, text in _HELP.items()}
        for key, values in self._current():
            for name, value in values.items():
                labels = {"clientkey": key}
                if name.endswith("websocket_session"):
                    labels["peer"] = "false"
                families[name].add_sample(families[name].name, labels, value)
        yield from families.values()
