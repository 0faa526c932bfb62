"""Connections to workload clusters: one per requested cluster, kept alive in the background.

`look` returns the known state at once: an unreachable cluster, or a network that drops packets, delays only the task of
that cluster. A cluster is connected when it has answered and all its Nodes are cached, so a Node that is not cached
does not exist. It is disconnected after several failed probes in a row. Rejected credentials are replaced at once, and
so is a transport that may fail soon (`nudge`). Listeners are called when a cluster connects or disconnects, when a Node
changes, and when the first probe in a row fails.

Probes request `/readyz`: an API server whose etcd has lost its quorum still answers `/`, but serves no request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from remuda.kube import clock, random_source
from remuda.kube.client import Client
from remuda.kube.errors import StatusError, Unauthorized, Unreachable
from remuda.kube.objects import Key, Kind, Object, Part
from remuda.runtime.informer import Informer
from remuda.runtime.queue import Backoff
from remuda.runtime.reflector import Reflector
from remuda.runtime.tasks import Tasks

log = logging.getLogger(__name__)

Dial = Callable[[Key], Awaitable[Client]]
Changed = Callable[[Key, Any], None]
Probed = Callable[[Key], None]
Explain = Callable[[Key, str], str]

# The owner of a workload cluster decides what it answers. A page of 500 large Pods is far smaller.
MOST_ANSWER_BYTES = 128 << 20
PROVIDER_ID = "providerID"  # name of the index of Nodes
_PROBE = "/readyz"
_SERVER_ERROR = 500
_LINGER_SECONDS = 5.0  # longer than most requests take


class NodeSpec(Part):
    provider_id: str = ""


class Node(Object):
    """Fields of a Node that are read here.

    A caller that needs more passes a kind of its own with at least these fields.
    """

    spec: NodeSpec = NodeSpec()


NODE = Kind("v1", "Node", "nodes", Node, namespaced=False)


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    probe_seconds: float = 10.0  # between two probes of a cluster, and after one that failed
    # for all healthy clusters together: the more clusters, the less often each is probed
    probes_per_second: float = 10.0
    rarest_seconds: float = 40.0  # maximum interval: a dead cluster is noticed within a minute
    answer_seconds: float = 5.0  # a probe that takes longer has failed
    probes: int = 5  # failures in a row until the cluster counts as disconnected
    connect_seconds: float = 30.0  # limit for all requests until a cluster counts as connected
    retry_seconds: float = 30.0  # between two attempts to connect, at most


class Connection(msgspec.Struct, frozen=True):
    """Connection state of one cluster. Times are wall time in seconds."""

    connected: bool = False
    client: Client | None = None
    nodes: Informer[Any] | None = None
    since: float | None = None  # time of the last connect or disconnect
    last_success: float | None = None
    failures: int = 0  # failures in a row of connection attempts or probes
    error: str = "no connection was requested"
    regained: float | None = None  # when it answered again after attempts or probes had failed
    unreadable: str = ""  # why the watch of its Nodes cannot be read; they are listed every few seconds meanwhile


_UNKNOWN = Connection()


class RemoteClusters:
    def __init__(self, dial: Dial, *, nodes: Kind[Any] = NODE, settings: RemoteSettings | None = None) -> None:
        self._dial = dial
        self._nodes = nodes
        self._settings = settings or RemoteSettings()
        self._links: dict[Key, tuple[_Link, asyncio.Task[None]]] = {}
        self._listeners: list[Changed] = []
        self._probe_listeners: list[Probed] = []
        self._explain: Explain = lambda cluster, why: why
        self._tasks = Tasks()

    def want(self, cluster: Key) -> None:
        """Connect to the cluster and stay connected until `forget`. A second call does nothing."""
        if cluster not in self._links:
            link = _Link(
                cluster,
                self._dial,
                self._nodes,
                self._settings,
                self._pause,
                self._notify,
                self._notify_probe,
                self._explained,
                self._tasks,
            )
            self._links[cluster] = (link, self._tasks.spawn(f"cluster {cluster}", link.run()))

    def forget(self, cluster: Key) -> None:
        """Close the connection, without calling listeners."""
        present = self._links.pop(cluster, None)
        if present is not None:
            link, task = present
            link.forgotten = True
            task.cancel()

    def nudge(self, cluster: Key) -> None:
        """Reconnect now, because the transport to the cluster has changed, even if the old one still works. The server
        at its end may be deleted soon, which only several failed probes would show."""
        present = self._links.get(cluster)
        if present is not None:
            present[0].nudged.set()

    def look(self, cluster: Key) -> Connection:
        present = self._links.get(cluster)
        return _UNKNOWN if present is None else present[0].connection

    def on_change(self, listener: Changed) -> None:
        """Register a function to call with a cluster and the Node that was created, changed or deleted; with None when
        the cluster itself connects or disconnects."""
        self._listeners.append(listener)

    def on_probe(self, listener: Probed) -> None:
        """Register a function to call with a cluster when a probe or a connection attempt fails for the first time in a
        row, and when one succeeds again."""
        self._probe_listeners.append(listener)

    def explained_by(self, explain: Explain) -> None:
        """Set the function that turns the error of a connection attempt into a message for users.

        The component that knows the transports to clusters provides it.
        """
        self._explain = explain

    def _pause(self) -> float:
        """Return the seconds between two probes of a healthy cluster."""
        wanted = max(self._settings.probe_seconds, len(self._links) / self._settings.probes_per_second)
        return min(wanted, self._settings.rarest_seconds)

    def _explained(self, cluster: Key, why: str) -> str:
        return self._explain(cluster, why)

    def _notify(self, cluster: Key, node: Any) -> None:
        for listener in self._listeners:
            try:
                listener(cluster, node)
            except Exception:
                log.exception("the callback for changed Nodes of cluster %s failed", cluster)

    def _notify_probe(self, cluster: Key) -> None:
        for listener in self._probe_listeners:
            try:
                listener(cluster)
            except Exception:
                log.exception("a listener to the probes of cluster %s failed", cluster)

    def __len__(self) -> int:
        return len(self._links)

    async def close(self) -> None:
        for cluster in list(self._links):
            self.forget(cluster)
        await self._tasks.close()


class _Link:
    """Link to one cluster: connects, probes the connection, and reconnects when it is lost."""

    def __init__(
        self,
        cluster: Key,
        dial: Dial,
        nodes: Kind[Any],
        settings: RemoteSettings,
        pause: Callable[[], float],
        notify: Changed,
        notify_probe: Probed,
        explain: Explain,
        lingering: Tasks,
    ) -> None:
        self._cluster = cluster
        self._lingering = lingering  # replaced clients that are not closed yet
        self._dial = dial
        self._nodes = nodes
        self._settings = settings
        self._pause = pause
        self._notify = notify
        self._notify_probe = notify_probe
        self._explain = explain
        self._backoff = Backoff(first=1.0, most=settings.retry_seconds)
        self.connection = Connection(since=clock.time(), error="not connected yet")
        self._reflector: Reflector | None = None  # of its Nodes
        self.nudged = asyncio.Event()
        self.forgotten = False

    async def run(self) -> None:
        attempts = 0
        while True:
            self.nudged.clear()
            try:
                async with self._connected() as client:
                    attempts = 0
                    await self._probe_repeatedly(client)
            except Exception as error:
                self._failed(error)
            if attempts:  # after a lost connection, reconnect at once, with the newest kubeconfig
                await self._nudged_within(self._backoff.seconds(attempts))
            attempts += 1

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """Connect, yield the client while the connection lasts, and close it."""
        async with asyncio.timeout(self._settings.connect_seconds):
            client = await self._dial(self._cluster)
        tasks, replaced = Tasks(), False
        try:
            informer = await self._list_nodes(client, tasks)
            now = clock.time()
            regained = now if self.connection.failures else self.connection.regained
            self._set(connected=True, client=client, nodes=informer, since=now, regained=regained, unreadable="")
            self._succeeded()
            self._notify(self._cluster, None)
            yield client
            replaced = True
        finally:
            if self.connection.connected:
                self._set(connected=False, client=None, nodes=None, since=clock.time())
                if not self.forgotten:
                    self._notify(self._cluster, None)
            await tasks.close()
            if replaced:  # requests in progress may finish
                self._lingering.spawn(f"close replaced client of {self._cluster}", _closed_later(client))
            else:
                await client.close()

    async def _list_nodes(self, client: Client, tasks: Tasks) -> Informer[Any]:
        """Return a cache of all Nodes, filled and kept up to date."""
        informer = Informer(self._nodes.decode, self._nodes.target, transform=without_unused_fields)
        informer.index(PROVIDER_ID, lambda node: (node.spec.provider_id,) if node.spec.provider_id else ())
        informer.listen(self._node_changed)
        reflector = Reflector(client, self._nodes.target, informer)
        self._reflector = reflector
        async with asyncio.timeout(self._settings.connect_seconds):
            await _probe(client)
            tasks.spawn(f"nodes of {self._cluster}", reflector.run())
            await reflector.attempted.wait()
        # The list may have succeeded and the watch failed already: the Nodes are known, and the reflector retries the
        # watch.
        if reflector.error is not None and not informer.synced.is_set():
            raise reflector.error
        return informer

    async def _probe_repeatedly(self, client: Client) -> None:
        """Probe the cluster until `nudge` is called; raise the last error after too many failed probes in a row."""
        while not await self._nudged_within(self._until_probe() * random_source.between(0.8, 1.2)):
            try:
                async with asyncio.timeout(self._settings.answer_seconds):
                    await _probe(client)
            except Exception as error:
                # A 401 ends the connection at once: more probes with the same credentials cannot succeed, and a new
                # connection reads the current kubeconfig.
                if _refused(error) or self.connection.failures + 1 >= self._settings.probes:
                    raise
                self._failed(error)
            else:
                self._succeeded()
                self._note_unreadable()

    def _note_unreadable(self) -> None:
        """Report a watch that cannot be read, and its recovery. The cluster stays connected: lists bring its Nodes."""
        why = self._reflector.unreadable if self._reflector is not None else ""
        if bool(why) != bool(self.connection.unreadable):  # the message differs with each event
            self._set(unreadable=why)
            self._notify(self._cluster, None)

    def _until_probe(self) -> float:
        return self._settings.probe_seconds if self.connection.failures else self._pause()

    async def _nudged_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self.nudged.wait()
        except TimeoutError:
            return False

    def _node_changed(self, before: Any, after: Any, initial: bool) -> None:
        # The Nodes of the first list are reported by one notification when the cluster counts as connected.
        if self.connection.connected and not (before and after and _same(before, after)):
            self._notify(self._cluster, after or before)

    def _failed(self, error: Exception) -> None:
        what = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        if isinstance(error, Unreachable | OSError):  # other errors are responses of the cluster itself
            what = self._explain(self._cluster, what)
        log.info("cannot reach cluster %s: %s", self._cluster, what)
        self._set(failures=self.connection.failures + 1, error=what)
        if self.connection.failures == 1:
            self._notify_probe(self._cluster)

    def _succeeded(self) -> None:
        failed = self.connection.failures > 0
        self._set(failures=0, error="", last_success=clock.time())
        if failed:
            self._notify_probe(self._cluster)

    def _set(self, **changes: Any) -> None:
        self.connection = msgspec.structs.replace(self.connection, **changes)


async def _closed_later(client: Client) -> None:
    try:
        await asyncio.sleep(_LINGER_SECONDS)
    finally:
        await client.close()


async def _probe(client: Client) -> None:
    """Raise if the API server is not ready. A server that lacks the path, or denies access to it, counts as ready."""
    try:
        await client.raw_get(_PROBE)
    except StatusError as error:
        if isinstance(error, Unreachable) or error.code >= _SERVER_ERROR or _refused(error):
            raise


def _refused(error: Exception) -> bool:
    # Not 403: a server that denies access to the probe's path still answers, and counts as ready.
    return isinstance(error, Unauthorized)


def _same(before: Object, after: Object) -> bool:
    """Return whether the change is only a heartbeat: no field that is read differs."""
    metadata = msgspec.structs.replace(after.metadata, resource_version=before.metadata.resource_version)
    return before == msgspec.structs.replace(after, metadata=metadata)


def without_unused_fields(value: bytes) -> bytes:
    """Return a Node without its largest unused parts: managedFields and the list of images."""
    node: dict[str, Any] = msgspec.json.decode(value)
    node["metadata"].pop("managedFields", None)
    status = node.get("status")
    if isinstance(status, dict):
        status.pop("images", None)
    return msgspec.json.encode(node)
