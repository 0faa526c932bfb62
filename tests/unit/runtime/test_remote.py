"""Connections to other clusters: real servers in this process, ports that swallow all, probes in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube import kubeconfig
from remuda.kube.client import Change, Client, Listing
from remuda.kube.errors import StatusError, UnreadableWatch, unauthorized
from remuda.kube.http import HttpClient
from remuda.kube.objects import Condition, Key, Kind, Part
from remuda.lab.simulator.loop import START
from remuda.runtime.remote import NODE, PROVIDER_ID, Node, RemoteClusters, RemoteSettings, without_unused_fields
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.runtime.things import until, virtually

C = Key("ns", "c")
QUICK = RemoteSettings(
    probe_seconds=0.05, answer_seconds=LIMIT_SECONDS, probes=2, connect_seconds=LIMIT_SECONDS, retry_seconds=0.1
)
IMPATIENT = msgspec.structs.replace(QUICK, connect_seconds=0.3)  # only for clusters that never answer


def node(name: str, provider_id: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": provider_id} if provider_id else {},
    }


class ChangeRecorder:
    def __init__(self, remote: RemoteClusters) -> None:
        self.heard: list[str] = []
        remote.on_change(self.record_change)

    def record_change(self, cluster: Key, changed: Node | None) -> None:
        self.heard.append(f"{cluster} {changed.metadata.name if changed else '*'}")


@pytest.fixture
async def workload(tmp_path: Path) -> AsyncIterator[ApiServer]:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "workload", port=0))
    yield server
    await server.stop()


@pytest.fixture
def blackhole() -> Iterator[int]:
    """A port whose connections are taken by the system and answered by nobody."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def over_http(server: ApiServer) -> HttpClient:
    return HttpClient(kubeconfig.load(server.kubeconfig))


async def test_wanted_cluster_is_connected_and_its_nodes_are_cached(workload: ApiServer) -> None:
    inside = workload.client()
    await inside.create(NODE.target, "", node("a", "cloud://a"))
    remote = RemoteClusters(lambda key: asyncio.sleep(0, over_http(workload)), settings=QUICK)
    recorder = ChangeRecorder(remote)
    assert remote.look(C).error == "no connection was requested"
    remote.want(C)
    remote.want(C)
    assert (len(remote), remote.look(C).connected, remote.look(C).client) == (1, False, None)
    await until(lambda: remote.look(C).connected)
    connection = remote.look(C)
    assert connection.nodes is not None
    assert [found.metadata.name for found in connection.nodes.select(PROVIDER_ID, "cloud://a")] == ["a"]
    assert connection.client is not None
    assert b"gitVersion" in await connection.client.raw_get("/version")
    assert recorder.heard == ["ns/c *"]
    await inside.create(NODE.target, "", node("b"))
    await until(lambda: recorder.heard[1:] == ["ns/c b"])
    await inside.delete(NODE.target, "", "b")
    await until(lambda: recorder.heard[2:] == ["ns/c b"])
    assert connection.nodes.get("", "b") is None
    await remote.close()
    assert remote.look(C).connected is False


async def test_lost_server_is_detected_and_reconnected_when_restarted(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=tmp_path / "w", port=0)
    server = await ApiServer.start(settings)
    current = [server]
    remote = RemoteClusters(lambda key: asyncio.sleep(0, over_http(current[0])), settings=QUICK)
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await until(lambda: remote.look(C).connected)
    await server.stop()
    await until(lambda: not remote.look(C).connected)
    await until(lambda: remote.look(C).failures > 2)
    lost = remote.look(C)
    assert (lost.client, lost.nodes) == (None, None)
    assert lost.error
    current[0] = await ApiServer.start(settings)
    await until(lambda: remote.look(C).connected)
    assert (remote.look(C).failures, remote.look(C).error) == (0, "")
    assert recorder.heard == ["ns/c *"] * 3
    await remote.close()
    await current[0].stop()


async def test_connect_error_uses_explainer_message(workload: ApiServer, blackhole: int) -> None:
    access = msgspec.structs.replace(kubeconfig.load(workload.kubeconfig), server=f"https://127.0.0.1:{blackhole}")
    remote = RemoteClusters(lambda key: asyncio.sleep(0, HttpClient(access)), settings=IMPATIENT)
    remote.explained_by(lambda cluster, why: f"{cluster} has no tunnel; {why}")
    remote.want(C)
    await until(lambda: remote.look(C).error == "ns/c has no tunnel; no answer in time")
    await remote.close()


async def test_unresponsive_cluster_does_not_delay_other_clusters(workload: ApiServer, blackhole: int) -> None:
    access = msgspec.structs.replace(kubeconfig.load(workload.kubeconfig), server=f"https://127.0.0.1:{blackhole}")

    async def dial(cluster: Key) -> Client:
        return over_http(workload) if cluster == C else HttpClient(access)

    # An attempt outlasts every limit of this test, so whatever waited for one would fail the test.
    remote = RemoteClusters(dial, settings=msgspec.structs.replace(QUICK, connect_seconds=2 * LIMIT_SECONDS))
    holes = [Key("ns", f"hole-{number}") for number in range(20)]
    for hole in holes:
        remote.want(hole)
    remote.want(C)
    await until(lambda: remote.look(C).connected)
    looks = [remote.look(hole) for hole in holes]  # which no `await` can hold up, and the guard of the loop watches
    assert not any(look.connected for look in looks)
    async with asyncio.timeout(LIMIT_SECONDS):
        await remote.close()


async def test_connection_attempts_to_unresponsive_clusters_time_out(workload: ApiServer, blackhole: int) -> None:
    access = msgspec.structs.replace(kubeconfig.load(workload.kubeconfig), server=f"https://127.0.0.1:{blackhole}")
    remote = RemoteClusters(lambda key: asyncio.sleep(0, HttpClient(access)), settings=IMPATIENT)
    holes = [Key("ns", f"hole-{number}") for number in range(20)]
    for hole in holes:
        remote.want(hole)
    await until(lambda: all(remote.look(hole).failures for hole in holes))
    assert remote.look(holes[0]).error == "no answer in time"
    await remote.close()


async def test_forgotten_cluster_leaves_no_tasks_or_connections(workload: ApiServer) -> None:
    before = {task.get_name() for task in asyncio.all_tasks()}
    closed: list[Key] = []

    async def dial(cluster: Key) -> Client:
        client = over_http(workload)
        close = client.close

        async def closing() -> None:
            closed.append(cluster)
            await close()

        client.close = closing  # type: ignore[method-assign]
        return client

    remote = RemoteClusters(dial, settings=QUICK)
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await until(lambda: remote.look(C).connected)
    remote.forget(C)
    remote.forget(C)
    assert remote.look(C).error == "no connection was requested"
    await until(lambda: closed)
    await until(lambda: {task.get_name() for task in asyncio.all_tasks()} <= before | {"nodes of ns/c"})
    await until(lambda: not {task.get_name() for task in asyncio.all_tasks()} - before)
    assert closed == [C]
    assert recorder.heard == ["ns/c *"], "whoever forgets a cluster knows"
    remote.want(C)
    await until(lambda: remote.look(C).connected)
    await remote.close()
    assert closed == [C, C]


class Model:
    """A workload cluster that answers as it is told: in virtual time there is no network."""

    def __init__(self, server: ApiServer) -> None:
        self._client = server.client()
        self.dials: list[float] = []
        self.probes: list[float] = []
        self.dial_error: Exception | None = None
        self.error: Exception | None = None
        self.hangs = False
        self.open = 0

    async def dial(self, cluster: Key) -> Client:
        self.dials.append(asyncio.get_running_loop().time())
        if self.dial_error is not None:
            raise self.dial_error
        self.open += 1
        return self  # type: ignore[return-value]

    async def raw_get(self, path: str) -> bytes:
        assert path == "/readyz"
        self.probes.append(asyncio.get_running_loop().time())
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return b"{}"

    async def close(self) -> None:
        self.open -= 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@virtually
async def test_probe_interval_is_jittered_around_ten_seconds(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)
    remote.want(C)
    await asyncio.sleep(600)
    gaps = [after - before for before, after in itertools.pairwise(model.probes)]
    assert all(8 <= gap <= 12 for gap in gaps)
    assert len({round(gap, 3) for gap in gaps}) > 10
    connection = remote.look(C)
    assert (connection.since, len(model.dials)) == (START, 1)
    assert connection.last_success is not None
    assert START + 585 <= connection.last_success <= START + 600
    await remote.close()
    assert model.open == 0


@virtually
async def test_unreadable_node_watch_falls_back_to_lists_and_is_reported_once(server: ApiServer) -> None:
    class Garbled(Model):
        garbled = 0

        async def watch(self, *args: Any, **options: Any) -> AsyncIterator[Change]:
            if self.garbled:
                self.garbled += 1
                raise UnreadableWatch(f"malformed in byte {self.garbled}")
            async for change in self._client.watch(*args, **options):
                yield change

    model = Garbled(server)
    model.garbled = 1
    remote = RemoteClusters(model.dial)
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await server.client().create(NODE.target, "", node("a"))
    await asyncio.sleep(120)
    connection = remote.look(C)
    assert connection.nodes is not None
    assert [found.metadata.name for found in connection.nodes.all()] == ["a"]
    assert (connection.connected, connection.failures, connection.error) == (True, 0, "")
    assert "the server's watch cannot be read: malformed in byte" in connection.unreadable
    assert recorder.heard.count("ns/c *") == 2, "connected, and then that its Nodes cannot be watched"
    model.garbled = 0
    await asyncio.sleep(20)
    await server.client().create(NODE.target, "", node("b"))
    await asyncio.sleep(20)
    assert remote.look(C).unreadable == ""
    assert recorder.heard.count("ns/c *") == 3
    await remote.close()


@virtually
async def test_cluster_is_disconnected_after_five_failed_probes(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await asyncio.sleep(60)
    model.error = StatusError(500, "InternalError", "etcd has no leader")
    began = len(model.probes)
    while len(model.probes) < began + 4:
        await asyncio.sleep(1)
    connection = remote.look(C)
    assert (connection.connected, connection.failures, connection.error) == (True, 4, "etcd has no leader")
    while len(recorder.heard) < 2:
        await asyncio.sleep(0.01)
    assert len(model.probes) - began - len(model.dials[1:]) == 5
    assert not remote.look(C).connected
    assert (model.open, remote.look(C).nodes) == (0, None)
    down = remote.look(C)
    assert down.since is not None
    assert down.last_success is not None
    assert down.last_success < down.since
    model.error = None
    await asyncio.sleep(60)
    assert remote.look(C).connected
    await remote.close()


@virtually
async def test_successful_probe_resets_failure_count(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await asyncio.sleep(5)
    for _ in range(3):
        model.error = OSError("unplugged")
        while remote.look(C).failures < 4:
            await asyncio.sleep(1)
        model.error = None
        while remote.look(C).failures:
            await asyncio.sleep(1)
    assert remote.look(C).connected
    assert (len(model.dials), recorder.heard) == (1, ["ns/c *"])
    await remote.close()


@virtually
async def test_probe_listener_is_called_on_first_failure_and_recovery(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)
    told: list[int] = []
    remote.on_probe(lambda cluster: told.append(remote.look(cluster).failures))
    remote.want(C)
    await asyncio.sleep(60)
    assert told == []
    model.error = OSError("unplugged")
    while remote.look(C).failures < 4:
        await asyncio.sleep(1)
    model.error = None
    while remote.look(C).failures:
        await asyncio.sleep(1)
    await asyncio.sleep(60)
    assert told == [1, 0]
    await remote.close()


@virtually
async def test_probe_404_counts_as_success(server: ApiServer) -> None:
    model = Model(server)
    model.error = StatusError(404, "NotFound", "there is nothing at this path")
    remote = RemoteClusters(model.dial)
    remote.want(C)
    await asyncio.sleep(60)
    assert remote.look(C).connected
    assert remote.look(C).failures == 0
    await remote.close()


@virtually
async def test_hanging_probes_disconnect_the_cluster(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)
    remote.want(C)
    await asyncio.sleep(5)
    model.hangs = True
    await asyncio.sleep(100)
    assert not remote.look(C).connected
    assert remote.look(C).error == "no answer in time"
    await remote.close()


@virtually
async def test_unauthorized_probe_reconnects_immediately(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)
    remote.want(C)
    await asyncio.sleep(5)
    model.error = unauthorized()
    while len(model.dials) < 2:
        await asyncio.sleep(0.1)
    assert model.dials[1] == model.probes[1], "not after four more probes, nor after a back-off"
    model.error = None
    await asyncio.sleep(10)
    assert remote.look(C).connected
    await remote.close()


@virtually
async def test_connection_attempts_back_off_to_thirty_seconds_until_nudged(server: ApiServer) -> None:
    model = Model(server)
    model.dial_error = StatusError(404, "NotFound", 'secrets "c-kubeconfig" not found')
    remote = RemoteClusters(model.dial)
    remote.want(C)
    await asyncio.sleep(600)
    gaps = [after - before for before, after in itertools.pairwise(model.dials)]
    assert gaps[0] <= 1
    assert max(gaps) <= 30
    assert min(gaps[8:]) >= 24
    assert 'secrets "c-kubeconfig" not found' in remote.look(C).error
    model.dial_error = None
    remote.nudge(C)
    remote.nudge(Key("ns", "unknown"))
    await asyncio.sleep(0.1)
    assert remote.look(C).connected
    await remote.close()


@virtually
async def test_nudge_switches_to_new_connection_and_closes_old_connection_later(server: ApiServer) -> None:
    old, new = Model(server), Model(server)
    ways = [old, new]
    remote = RemoteClusters(lambda cluster: ways.pop(0).dial(cluster))
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await asyncio.sleep(1)
    assert remote.look(C).client is old  # type: ignore[comparison-overlap]
    remote.nudge(C)
    remote.nudge(C)
    await asyncio.sleep(0.1)
    assert remote.look(C).client is new  # type: ignore[comparison-overlap]
    assert (remote.look(C).connected, remote.look(C).failures, new.open) == (True, 0, 1)
    assert old.open == 1, "whoever is in the middle of something with it may come to the end of that"
    assert recorder.heard == ["ns/c *"] * 3
    await asyncio.sleep(600)
    assert remote.look(C).client is new  # type: ignore[comparison-overlap]
    assert (old.open, new.open) == (0, 1)
    await remote.close()


@virtually
async def test_replaced_connection_is_closed_on_shutdown(server: ApiServer) -> None:
    old, new = Model(server), Model(server)
    ways = [old, new]
    remote = RemoteClusters(lambda cluster: ways.pop(0).dial(cluster))
    remote.want(C)
    await asyncio.sleep(1)
    remote.nudge(C)
    await asyncio.sleep(0.1)
    await remote.close()
    assert (old.open, new.open) == (0, 0)


@virtually
async def test_cluster_with_forbidden_node_list_is_not_connected(server: ApiServer) -> None:
    model = Model(server)

    async def refuse(*args: Any, **options: Any) -> Any:
        raise StatusError(403, "Forbidden", "nodes is forbidden")

    model.list = refuse  # type: ignore[attr-defined]
    remote = RemoteClusters(model.dial)
    remote.want(C)
    await asyncio.sleep(60)
    assert (remote.look(C).connected, remote.look(C).error) == (False, "nodes is forbidden")
    assert model.open <= 1
    await remote.close()
    assert model.open == 0


@virtually
async def test_node_heartbeats_do_not_notify_listeners(server: ApiServer) -> None:
    client = server.client()
    await client.create(NODE.target, "", node("a", "cloud://a"))
    model = Model(server)
    remote = RemoteClusters(model.dial)
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await asyncio.sleep(1)
    for beat in range(5):
        heartbeat = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{beat}Z"}
        await client.patch(NODE.target, "", "a", {"status": {"conditions": [heartbeat]}}, subresource="status")
    await asyncio.sleep(1)
    assert recorder.heard == ["ns/c *"]
    await client.patch(NODE.target, "", "a", {"metadata": {"labels": {"colour": "red"}}})
    await asyncio.sleep(1)
    assert recorder.heard == ["ns/c *", "ns/c a"]
    await remote.close()


@virtually
async def test_failing_listener_does_not_affect_connection_or_other_listeners(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)

    def fails(cluster: Key, changed: Any) -> None:
        raise ZeroDivisionError

    remote.on_change(fails)
    recorder = ChangeRecorder(remote)
    remote.want(C)
    await asyncio.sleep(60)
    assert remote.look(C).connected
    assert recorder.heard == ["ns/c *"]
    await remote.close()


@virtually
async def test_thousand_idle_clusters_only_probe_with_low_cpu_usage(server: ApiServer) -> None:
    model = Model(server)
    remote = RemoteClusters(model.dial)
    for number in range(1000):
        remote.want(Key("ns", f"c{number}"))
    await asyncio.sleep(120)
    assert all(remote.look(Key("ns", f"c{number}")).connected for number in range(1000))
    began, used = len(model.probes), time.thread_time()
    await asyncio.sleep(600)
    used = time.thread_time() - used
    assert 12000 <= len(model.probes) - began <= 18900, "one in 40 s of each: as rarely as it gets"
    assert used < 600 * 0.01, "ten minutes of a thousand clusters take less than a hundredth of that"
    await remote.close()
    assert model.open == 0


@virtually
async def test_failing_cluster_among_many_is_probed_at_full_rate(server: ApiServer) -> None:
    well, ill = Model(server), Model(server)

    async def dial(cluster: Key) -> Client:
        return await (ill if cluster == C else well).dial(cluster)

    remote = RemoteClusters(dial)
    for number in range(1000):
        remote.want(Key("ns", f"c{number}"))
    remote.want(C)
    await asyncio.sleep(120)
    ill.error = StatusError(500, "InternalError", "etcd has no leader")
    began = len(ill.probes)
    while remote.look(C).connected:
        await asyncio.sleep(0.1)
    failed = ill.probes[began : began + 5]
    assert all(8 <= after - before <= 12 for before, after in itertools.pairwise(failed))
    await remote.close()


def test_cached_nodes_omit_managed_fields_and_images() -> None:
    whole = {
        "metadata": {"name": "a", "managedFields": [{"manager": "kubelet"}], "labels": {"x": "y"}},
        "spec": {"providerID": "cloud://a"},
        "status": {"images": [{"names": ["big"]}], "phase": "Running"},
    }
    assert msgspec.json.decode(without_unused_fields(msgspec.json.encode(whole))) == {
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {"providerID": "cloud://a"},
        "status": {"phase": "Running"},
    }
    assert without_unused_fields(b'{"metadata":{}}') == b'{"metadata":{}}'


class TellingStatus(Part):
    conditions: Sequence[Condition] = ()


class TellingNode(Node):
    status: TellingStatus = TellingStatus()


TOLD_NODE = Kind("v1", "Node", "nodes", TellingNode, namespaced=False)


async def test_node_with_null_condition_times_is_cached(workload: ApiServer) -> None:
    """As Go writes such a Node."""
    inside = workload.client()
    await inside.create(NODE.target, "", node("a", "cloud://a"))
    await inside.create(NODE.target, "", node("b", "cloud://b"))
    never = {"type": "Ready", "status": "True", "lastHeartbeatTime": None, "lastTransitionTime": None}

    class Nulls(HttpClient):
        async def list(self, *args: Any, **options: Any) -> Listing:
            listing = await super().list(*args, **options)
            return Listing(list(map(with_nulls, listing.items)), listing.resource_version)

    def with_nulls(value: bytes) -> bytes:
        return msgspec.json.encode(msgspec.json.decode(value) | {"status": {"conditions": [never]}})

    dialled = Nulls(kubeconfig.load(workload.kubeconfig))
    remote = RemoteClusters(lambda key: asyncio.sleep(0, dialled), nodes=TOLD_NODE, settings=QUICK)
    remote.want(C)
    await until(lambda: remote.look(C).connected)
    nodes = remote.look(C).nodes
    assert nodes is not None
    assert [found.status.conditions[0].last_transition_time for found in nodes.all()] == ["", ""]
    assert [found.metadata.name for found in nodes.select(PROVIDER_ID, "cloud://b")] == ["b"]
    await remote.close()
