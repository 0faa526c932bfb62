"""Connectivity of clusters, for the error messages that callers of an unreachable cluster get.

They report whether there is a tunnel, since when not and why, and what happens next. They distinguish three cases: no
tunnel, a tunnel without an API behind it, and the result of the direct connection. The state before this process was
started is unknown, and messages do not mention it.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from remuda.kube import clock
from remuda.kube.errors import StatusError
from remuda.tunnel.session_table import Key, SessionEvent, Sessions

_RETRY_SECONDS = 1
_COMING_BACK_SECONDS = 30.0
"""Time after the loss of its tunnel in which a cluster is likely to be back soon. Kubernetes clients that get a
Retry-After retry ten times or more before they show the message, so later responses have none."""


class _Lost(NamedTuple):
    at: float  # seconds since 1970
    node: str
    reason: str


class Connectivity:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._began = clock.time()
        self._lost: dict[str, _Lost] = {}  # the last tunnel of each cluster that has ended
        sessions.listen(self._session_changed)

    def had_tunnel(self, cluster: str) -> bool:
        return cluster in self._lost

    def forget(self, cluster: str) -> None:
        self._lost.pop(cluster, None)

    def silent_since(self, cluster: str, node: str) -> float | None:
        """Return since when nothing has come through the tunnel of a node. None: it is open and alive, or this process
        has never had one of that node."""
        session = next((one for one in self._sessions.of(cluster) if one.key.node == node), None)
        if session is None:
            ended = self._sessions.last_end(Key(cluster, node))
            return None if ended is None else ended.at
        now = asyncio.get_running_loop().time()
        return clock.time() - session.mux.silent_for(now) if session.is_stalled(now) else None

    def unreachable(self, cluster: str, why: str) -> StatusError:
        """Return the error for an unreachable cluster. `why`: the result of the attempt."""
        if self._sessions.has(cluster):
            return unavailable(
                f"the cluster {cluster} is connected, but the request through its tunnel failed: {why}",
                soon=True,
            )
        lost = self._lost.get(cluster)
        if lost is None:
            began = clock.rfc3339(self._began)
            return unavailable(
                f"the cluster {cluster} has not connected yet; {why}; none of its servers has opened a tunnel "
                f"since this manager started at {began}; run journalctl -u remuda-tunnel on a server to see why"
            )
        return unavailable(
            f"the cluster {cluster} has not been connected since {clock.rfc3339(lost.at)}: {lost.reason} (tunnel "
            f"of {lost.node}); {why}; its servers reconnect automatically",
            soon=clock.time() - lost.at < _COMING_BACK_SECONDS,
        )

    def _session_changed(self, event: SessionEvent) -> None:
        if not event.connected:
            self._lost[event.key.cluster] = _Lost(clock.time(), event.key.node, event.reason)


def unavailable(text: str, *, soon: bool = False) -> StatusError:
    return StatusError(
        503,
        "ServiceUnavailable",
        text,
        details={"retryAfterSeconds": _RETRY_SECONDS},
        headers={"Retry-After": str(_RETRY_SECONDS)} if soon else None,
    )
