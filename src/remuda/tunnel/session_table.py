"""Table of all tunnel sessions of this process, by cluster and node, and dialling through them.

What must stay true:
- The key of a session is its cluster and node. A new session replaces the one with the same key, and no other.
- A dial uses the newest session of the cluster that shows signs of life and has not just failed for this address. If it
  fails, the next session is tried. Stalled sessions are tried last.
- The reason why the last session of a key ended is stored until `forget` is called for its cluster.

The metrics have remotedialer's names, so that dashboards made for it work. Each scrape adds up the counters of the
sessions, so that counting costs nothing while bytes flow. Upstream's label with the dialled address is left out,
because its number of values has no bound.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from remuda.tunnel import protocol
from remuda.tunnel.mux import Mux, TunnelLost
from remuda.tunnel.transport import StreamTransport, secured

log = logging.getLogger(__name__)

DIAL_SECONDS = 10.0
_FAILED_SECONDS = 5.0  # how long a session that could not reach an address is not the first choice for it
_REMEMBERED = 20_000  # keys
_READER_LIMIT = 256 * 1024
_HELP = {
    "add_websocket_session": "Sessions that began",
    "remove_websocket_session": "Sessions that ended",
    "add_connections": "Streams that began",
    "remove_connections": "Streams that ended",
    "transmit_bytes": "Bytes of data sent",
    "transmit_error_bytes": "Bytes of errors sent",
    "receive_bytes": "Bytes of data received",
}
_COUNTERS = tuple(_HELP)

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Key(NamedTuple):
    cluster: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.cluster}:{self.node}" if self.node else self.cluster


class Ended(NamedTuple):
    at: float  # seconds since 1970
    reason: str


class SessionEvent(NamedTuple):
    key: Key
    address: str
    connected: bool
    reason: str  # of the end


class DialError(ConnectionError):
    """Failed dial; the text says which sessions were tried and why each one failed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.strerror = text  # what HTTP clients quote


class Session(Protocol):
    """Interface of one session."""

    key: Key
    address: str
    confirms: bool
    mux: Mux

    def end(self, reason: str) -> None: ...
    def is_stalled(self, now: float) -> bool: ...


class Sessions:
    def __init__(self, listener: Callable[[SessionEvent], None] = lambda event: None) -> None:
        self._listeners = [listener]
        self._clusters: dict[str, dict[str, Session]] = {}  # newest last
        self._ended: dict[Key, Ended] = {}
        self._counts: dict[Key, SessionCounters] = {}
        self._failed: dict[tuple[Key, str], float] = {}
        self.metrics = TunnelMetrics(self._current)

    def listen(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call `listener` when a session begins and when one ends."""
        self._listeners.append(listener)

    def _notify(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            listener(event)

    # Sessions

    def add(self, session: Session) -> None:
        of_cluster = self._clusters.setdefault(session.key.cluster, {})
        # Remove the key before it is added again, so that the session moves to the end of the dict, where the newest
        # one is.
        displaced = of_cluster.pop(session.key.node, None)
        of_cluster[session.key.node] = session
        self._counts_of(session.key).values["add_websocket_session"] += 1
        log.info("tunnel of %s from %s is open", session.key, session.address)
        if displaced is not None:
            # End the old session only when the new one is in the table: `remove` then leaves the new one there, and no
            # listener sees the cluster without a tunnel.
            displaced.end(f"displaced by a new session from {session.address}")
        self._notify(SessionEvent(session.key, session.address, True, ""))

    def remove(self, session: Session, reason: str) -> None:
        of_cluster = self._clusters.get(session.key.cluster, {})
        if of_cluster.get(session.key.node) is session:
            del of_cluster[session.key.node]
            if not of_cluster:
                del self._clusters[session.key.cluster]
        counts = self._counts_of(session.key)
        counts.add(_counters(session.mux))
        counts.values["remove_websocket_session"] += 1
        # Remove and add again, so that the oldest end is the first in the dict and is dropped first.
        self._ended.pop(session.key, None)
        self._ended[session.key] = Ended(time.time(), reason)
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]
        log.info("tunnel of %s from %s has ended: %s", session.key, session.address, reason)
        self._notify(SessionEvent(session.key, session.address, False, reason))

    def forget(self, cluster: str) -> None:
        """End the sessions of a cluster that was deleted, and drop everything stored about them."""
        for session in list(self._clusters.get(cluster, {}).values()):
            session.end("the cluster was removed")
        for key in [key for key in {*self._ended, *self._counts} if key.cluster == cluster]:
            self._ended.pop(key, None)
            self._counts.pop(key, None)

    def of(self, cluster: str) -> list[Session]:
        """Return the sessions of a cluster, newest first."""
        return list(reversed(self._clusters.get(cluster, {}).values()))

    def clusters(self) -> list[str]:
        return list(self._clusters)

    def has(self, cluster: str) -> bool:
        return cluster in self._clusters

    def last_end(self, key: Key) -> Ended | None:
        return self._ended.get(key)

    def end_all(self, reason: str) -> None:
        for cluster in self.clusters():
            for session in self.of(cluster):
                session.end(reason)

    # Dialling

    async def dial(
        self,
        cluster: str,
        network: str,
        address: str,
        make: Callable[[], P],
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        seconds: float = DIAL_SECONDS,
    ) -> tuple[asyncio.Transport, P]:
        """Connect like the event loop's `create_connection`. Raises DialError, and ssl.SSLError if TLS fails."""
        user = make()
        transport = await self._open(cluster, network, address, seconds)
        if tls is None:
            transport.begin(user)
            return transport, user
        return await secured(transport, user, tls, server_name, seconds), user

    async def open(
        self, cluster: str, network: str, address: str, *, seconds: float = DIAL_SECONDS
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READER_LIMIT, loop=loop)
        user = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await self.dial(cluster, network, address, lambda: user, seconds=seconds)
        return reader, asyncio.StreamWriter(transport, user, reader, loop)

    async def _open(self, cluster: str, network: str, address: str, seconds: float) -> StreamTransport:
        """Return a stream that is connected, or may be: not every client confirms it."""
        loop = asyncio.get_running_loop()
        candidates = self._candidates(cluster, f"{network}/{address}", loop.time())
        if not candidates:
            # The text is remotedialer's.
            raise DialError(f"failed to find Session for client {cluster}")
        until = loop.time() + seconds
        failures: list[str] = []
        for left, session in zip(range(len(candidates), 0, -1), candidates, strict=True):
            # A session that does not answer must leave time for the others.
            share = max(0.0, until - loop.time()) / left
            reason, transport = await self._dial_through(loop, session, network, address, share)
            if transport is not None:
                return transport
            self._failed[session.key, f"{network}/{address}"] = loop.time() + _FAILED_SECONDS
            failures.append(f"{session.key}: {reason}")
        raise DialError(f"cannot reach {network}/{address} through any tunnel: " + "; ".join(failures))

    async def _dial_through(
        self, loop: asyncio.AbstractEventLoop, session: Session, network: str, address: str, seconds: float
    ) -> tuple[str, StreamTransport | None]:
        try:
            stream = session.mux.open(network, address)
        except TunnelLost as error:  # it ended while others were tried
            return str(error), None
        transport = StreamTransport(loop, stream, str(session.key))
        stream.consumer = transport
        # Go clients confirm nothing, so a dial through them returns at once. A failure arrives on the stream later.
        if not session.confirms:
            transport.answered.add_done_callback(
                lambda answer: self._record_outcome(session.key, network, address, answer)
            )
            return "", transport
        try:
            async with asyncio.timeout(seconds):
                reason = await transport.answered
        except TimeoutError:
            stream.fail("no answer in time")
            return f"no answer within {seconds:.1f} s", None
        except BaseException:
            transport.abort()
            raise
        # END: the target accepted the connection and closed it at once, so the dial succeeded.
        return reason, transport if reason in ("", protocol.END) else None

    def _record_outcome(self, key: Key, network: str, address: str, answer: asyncio.Future[str]) -> None:
        """Record the first result of a stream whose client does not confirm connections."""
        if not answer.cancelled() and answer.result() not in ("", protocol.END):
            self._failed[key, f"{network}/{address}"] = asyncio.get_running_loop().time() + _FAILED_SECONDS

    def _candidates(self, cluster: str, target: str, now: float) -> list[Session]:
        self._failed = {what: until for what, until in self._failed.items() if until > now}
        return sorted(
            self.of(cluster), key=lambda session: (session.is_stalled(now), (session.key, target) in self._failed)
        )

    # Counts

    def _counts_of(self, key: Key) -> SessionCounters:
        if key not in self._counts and len(self._counts) >= _REMEMBERED:
            del self._counts[next(iter(self._counts))]
        return self._counts.setdefault(key, SessionCounters())

    def _current(self) -> Iterator[tuple[str, dict[str, int]]]:
        for key, counts in self._counts.items():
            values = dict(counts.values)
            session = self._clusters.get(key.cluster, {}).get(key.node)
            if session is not None:
                for name, value in _counters(session.mux).items():
                    values[name] += value
            yield str(key), values


def _counters(mux: Mux) -> dict[str, int]:
    return {
        "add_connections": mux.opened,
        "remove_connections": mux.closed,
        "transmit_bytes": mux.bytes_out,
        "transmit_error_bytes": mux.error_bytes_out,
        "receive_bytes": mux.bytes_in,
    }


class SessionCounters:
    """Counters of one client key, over all its sessions."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = dict.fromkeys(_COUNTERS, 0)

    def add(self, other: dict[str, int]) -> None:
        for name, value in other.items():
            self.values[name] += value


class TunnelMetrics(Collector):
    """Metrics of tunnels. `current` returns the counts of each client key, including running sessions."""

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
