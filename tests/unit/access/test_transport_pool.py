from __future__ import annotations

import asyncio
import base64
import gc
import socket
from collections.abc import Iterator

import aiohttp
import pytest
import yaml

from remuda.capi import names
from remuda.kube import clock, kubeconfig
from remuda.kube.core import SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.runtime.outcome import Retryable
from tests.lab.fake_workload_cluster import FakeWorkloadCluster, Seen, begin_chunks, chunk, whole
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.proxied import NAMESPACE, ProxiedCluster

ID = "c-m-abc"


async def version(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole(writer, b'{"gitVersion":"v1.36.4+k3s1"}')


async def test_transport_uses_tunnel_while_connected_and_notifies_on_change(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    key = await proxied_cluster.cluster(ID, workload_cluster.config())
    direct = await proxied_cluster.ways.of(ID)
    assert (direct.through, direct.key, direct.server) == ("direct", key, f"https://{workload_cluster.address}")
    assert await proxied_cluster.ways.of(ID) is direct
    first, second = await proxied_cluster.tunnel(ID, "roan"), await proxied_cluster.tunnel(ID, "bay")
    assert proxied_cluster.changed == [key]
    tunnel = await proxied_cluster.ways.of(ID)
    assert (tunnel.through, await proxied_cluster.ways.of(ID)) == ("tunnel", tunnel)
    first.stop()
    await proxied_cluster.until(lambda: len(proxied_cluster.sessions.of(ID)) == 1)
    assert (await proxied_cluster.ways.of(ID), proxied_cluster.changed) == (tunnel, [key])
    second.stop()
    await proxied_cluster.until(lambda: not proxied_cluster.sessions.has(ID))
    assert proxied_cluster.changed == [key, key]
    assert (await proxied_cluster.ways.of(ID)).through == "direct"


async def test_node_silence_counts_from_end_of_its_tunnel(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config())
    began = clock.time()
    roan, _ = await proxied_cluster.tunnel(ID, "roan"), await proxied_cluster.tunnel(ID, "bay")
    assert [proxied_cluster.ways.silent_since(ID, node) for node in ("roan", "bay", "never-seen")] == [None, None, None]
    roan.stop()
    await proxied_cluster.until(lambda: len(proxied_cluster.sessions.of(ID)) == 1)
    since = proxied_cluster.ways.silent_since(ID, "roan")
    assert since is not None
    assert began <= since <= clock.time()
    assert proxied_cluster.ways.silent_since(ID, "bay") is None
    await proxied_cluster.tunnel(ID, "roan")
    assert proxied_cluster.ways.silent_since(ID, "roan") is None, "it is back"


async def test_node_with_idle_open_tunnel_is_silent_since_the_last_received_frame(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config())
    await proxied_cluster.tunnel(ID, "roan")
    (session,) = proxied_cluster.sessions.of(ID)
    monkeypatch.setattr(session.mux, "silent_for", lambda now: 20.0)
    since = proxied_cluster.ways.silent_since(ID, "roan")
    assert since is not None
    assert since <= clock.time() - 20


async def test_tunnel_reconnect_notifies_twice_and_replaces_the_transport(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    key = await proxied_cluster.cluster(ID, workload_cluster.config())
    await proxied_cluster.tunnel(ID)
    before = await proxied_cluster.ways.of(ID)
    proxied_cluster.cut(ID)
    await proxied_cluster.until(lambda: proxied_cluster.changed == [key, key, key])  # went, and came back
    after = await proxied_cluster.ways.of(ID)
    assert (after.through, after is before) == ("tunnel", False)


async def test_new_credentials_replace_transport_without_closing_active_requests(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    key = await proxied_cluster.cluster(ID, workload_cluster.config())

    async def watch(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await begin_chunks(writer)
        await chunk(writer, b"one\n")
        await reader.readline()

    workload_cluster.answer = watch
    old = await proxied_cluster.ways.of(ID)
    with old:
        answer = await old.request("GET", "/api/v1/pods?watch=1", [])
        assert await answer.content.readline() == b"one\n"
        await proxied_cluster.credentials(key, workload_cluster.config(user="other"))
        new = await proxied_cluster.ways.of(ID)
        assert new is not old
        await asyncio.sleep(0)
        assert answer.connection is not None
        assert not answer.connection.transport.is_closing()
        assert not old._session.closed
        answer.close()
    await proxied_cluster.until(lambda: old._session.closed)
    assert not new._session.closed


async def test_concurrent_lookups_share_a_single_transport(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config())
    found = await asyncio.gather(*(proxied_cluster.ways.of(ID) for _ in range(20)))
    assert len(set(map(id, found))) == 1


async def test_deleted_cluster_closes_transport_and_returns_404(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    key = await proxied_cluster.cluster(ID, workload_cluster.config())
    way = await proxied_cluster.ways.of(ID)
    await proxied_cluster.client.delete(RKE_CONTROL_PLANE.target, *key)
    await proxied_cluster.until(lambda: way._session.closed)
    with pytest.raises(StatusError) as gone:
        await proxied_cluster.ways.of(ID)
    assert gone.value.code == 404


async def test_cluster_without_kubeconfig_returns_503_with_reason(proxied_cluster: ProxiedCluster) -> None:
    plane = {
        "metadata": {"name": "young"},
        "spec": {"clusterName": "young", "managementClusterName": ID, "kubernetesVersion": "v1.36.4+k3s1"},
    }
    await proxied_cluster.client.create(RKE_CONTROL_PLANE.target, NAMESPACE, plane)
    await proxied_cluster.until(lambda: proxied_cluster.clusters.find(ID))
    with pytest.raises(StatusError) as waits:
        await proxied_cluster.ways.of(ID)
    assert (waits.value.code, waits.value.details) == (503, {"retryAfterSeconds": 1})
    assert waits.value.message == f"the cluster {ID} has not connected yet; its control plane has no kubeconfig yet"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Server that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("upgraded", [False, True])
async def test_direct_connect_timeout_fails_later_requests_fast_until_tunnel_returns(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    silent_server: str,
    monkeypatch: pytest.MonkeyPatch,
    upgraded: bool,
) -> None:
    monkeypatch.setattr("remuda.access.cluster_transport.CONNECT_SECONDS", 0.2)
    monkeypatch.setattr("remuda.access.transport_pool._SHUT_SECONDS", LIMIT_SECONDS)
    await proxied_cluster.cluster(ID, workload_cluster.config(silent_server))
    (await proxied_cluster.tunnel(ID)).stop()
    await proxied_cluster.until(lambda: not proxied_cluster.sessions.has(ID))
    way = await proxied_cluster.ways.of(ID)
    with pytest.raises(OSError, match=r"no connection within|[Tt]imeout"):
        await (way.connect(asyncio.Protocol) if upgraded else way.request("GET", "/version", []))
    with pytest.raises(StatusError) as told:
        await proxied_cluster.ways.of(ID)
    assert told.value.code == 503
    assert told.value.message.startswith(f"the cluster {ID} has not been connected since ")
    assert f"(tunnel of roan); cannot reach {silent_server}: no connection within " in told.value.message
    assert told.value.message.endswith("; its servers reconnect automatically")
    await proxied_cluster.tunnel(ID)
    assert (await proxied_cluster.ways.of(ID)).through == "tunnel"


async def test_cluster_without_tunnel_history_always_retries_direct_connection(
    proxied_cluster: ProxiedCluster,
    workload_cluster: FakeWorkloadCluster,
    silent_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("remuda.access.cluster_transport.CONNECT_SECONDS", 0.2)
    await proxied_cluster.cluster(ID, workload_cluster.config(silent_server))
    way = await proxied_cluster.ways.of(ID)
    with pytest.raises(aiohttp.ConnectionTimeoutError):
        await way.request("GET", "/version", [])
    assert await proxied_cluster.ways.of(ID) is way


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", ""])
async def test_kubeconfig_without_tls_verification_is_rejected(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, server: str
) -> None:
    config = workload_cluster.config(server)
    if not server:
        config["clusters"][0]["cluster"] |= {"insecure-skip-tls-verify": True}
        del config["clusters"][0]["cluster"]["certificate-authority-data"]
    await proxied_cluster.cluster(ID, config)
    with pytest.raises(StatusError) as refused:
        await proxied_cluster.ways.of(ID)
    assert "cannot be used to verify" in refused.value.message


# Our own controllers


async def test_connect_error_message_includes_cluster_connectivity(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    key = await proxied_cluster.cluster(ID, workload_cluster.config())
    why = "no answer in time"
    never = proxied_cluster.ways.told(key, why)
    assert never.startswith(
        f"the cluster {ID} has not connected yet; {why}; none of its servers has opened a tunnel since "
    )
    tunnel = await proxied_cluster.tunnel(ID)
    behind = proxied_cluster.ways.told(key, why)
    assert behind == f"the cluster {ID} is connected, but the request through its tunnel failed: {why}"
    tunnel.stop()
    await proxied_cluster.until(lambda: not proxied_cluster.sessions.has(ID))
    lost = proxied_cluster.ways.told(key, why)
    assert lost.startswith(f"the cluster {ID} has not been connected since ")
    assert lost.endswith(f"(tunnel of roan); {why}; its servers reconnect automatically")
    assert proxied_cluster.ways.told(Key(NAMESPACE, "somebody-elses"), why) == why


async def test_controller_client_uses_the_tunnel_without_impersonation(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    key = await proxied_cluster.cluster(ID, workload_cluster.config("https://127.0.0.1:1"))
    workload_cluster.answer = version
    with pytest.raises(StatusError, match=r"127\.0\.0\.1:1"):
        await _asked(proxied_cluster, key)
    await proxied_cluster.tunnel(ID)
    assert await _asked(proxied_cluster, key) == b'{"gitVersion":"v1.36.4+k3s1"}'
    (seen,) = workload_cluster.seen
    assert not seen.all("impersonate-user")  # as the administrator, whose certificate was asked for


async def _asked(proxied_cluster: ProxiedCluster, key: Key) -> bytes:
    client = await proxied_cluster.ways.dial(key)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await client.raw_get("/version")
    finally:
        await client.close()


async def test_controller_client_rejects_oversized_cluster_response(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.access.transport_pool.MOST_ANSWER_BYTES", 10)
    workload_cluster.answer = version
    key = await proxied_cluster.cluster(ID, workload_cluster.config())
    await kubeconfig_of(proxied_cluster, Key(NAMESPACE, "foreign"), workload_cluster.config())
    for cluster in (key, Key(NAMESPACE, "foreign")):
        with pytest.raises(StatusError, match="is larger than 10 bytes"):
            await _asked(proxied_cluster, cluster)
    await proxied_cluster.tunnel(ID)
    with pytest.raises(StatusError, match="is larger than 10 bytes"):
        await _asked(proxied_cluster, key)


async def kubeconfig_of(proxied_cluster: ProxiedCluster, cluster: Key, config: dict[str, object]) -> None:
    """The contract's."""
    secret = {
        "metadata": {"name": names.kubeconfig_secret(cluster.name), "labels": {names.CLUSTER_NAME: cluster.name}},
        "data": {names.KUBECONFIG_KEY: base64.b64encode(yaml.safe_dump(config).encode()).decode()},
    }
    await proxied_cluster.client.create(SECRETS, cluster.namespace, secret)


async def test_externally_managed_cluster_is_dialed_with_its_own_kubeconfig(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster
) -> None:
    workload_cluster.answer = version
    foreign = Key(NAMESPACE, "foreign")
    await kubeconfig_of(proxied_cluster, foreign, workload_cluster.config())
    assert await _asked(proxied_cluster, foreign) == b'{"gitVersion":"v1.36.4+k3s1"}'


async def test_dial_rejects_kubeconfig_pointing_at_own_proxy(proxied_cluster: ProxiedCluster) -> None:
    foreign = Key(NAMESPACE, "foreign")
    await kubeconfig_of(proxied_cluster, foreign, kubeconfig.build(proxied_cluster.url(ID), token="t"))
    with pytest.raises(Retryable, match="uses this manager"):
        await proxied_cluster.ways.dial(foreign)


async def test_transport_pool_close_leaves_no_unclosed_sessions(
    proxied_cluster: ProxiedCluster, workload_cluster: FakeWorkloadCluster, recwarn: pytest.WarningsRecorder
) -> None:
    await proxied_cluster.cluster(ID, workload_cluster.config())
    await proxied_cluster.ways.of(ID)
    await proxied_cluster.ways.close()
    gc.collect()
    assert not [one for one in recwarn if "Unclosed" in str(one.message)]
