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
from tests.lab.far_cluster import FarCluster, Seen, begin_chunks, chunk, whole
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.proxied import NAMESPACE, Proxied

ID = "c-m-abc"


async def version(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole(writer, b'{"gitVersion":"v1.36.4+k3s1"}')


async def test_transport_uses_tunnel_while_connected_and_notifies_on_change(place: Proxied, far: FarCluster) -> None:
    key = await place.cluster(ID, far.config())
    direct = await place.ways.of(ID)
    assert (direct.through, direct.key, direct.server) == ("direct", key, f"https://{far.address}")
    assert await place.ways.of(ID) is direct
    first, second = await place.tunnel(ID, "roan"), await place.tunnel(ID, "bay")
    assert place.changed == [key]
    tunnel = await place.ways.of(ID)
    assert (tunnel.through, await place.ways.of(ID)) == ("tunnel", tunnel)
    first.stop()
    await place.until(lambda: len(place.sessions.of(ID)) == 1)
    assert (await place.ways.of(ID), place.changed) == (tunnel, [key])
    second.stop()
    await place.until(lambda: not place.sessions.has(ID))
    assert place.changed == [key, key]
    assert (await place.ways.of(ID)).through == "direct"


async def test_a_node_is_silent_since_its_tunnel_ended(place: Proxied, far: FarCluster) -> None:
    await place.cluster(ID, far.config())
    began = clock.time()
    roan, _ = await place.tunnel(ID, "roan"), await place.tunnel(ID, "bay")
    assert [place.ways.silent_since(ID, node) for node in ("roan", "bay", "never-seen")] == [None, None, None]
    roan.stop()
    await place.until(lambda: len(place.sessions.of(ID)) == 1)
    since = place.ways.silent_since(ID, "roan")
    assert since is not None
    assert began <= since <= clock.time()
    assert place.ways.silent_since(ID, "bay") is None
    await place.tunnel(ID, "roan")
    assert place.ways.silent_since(ID, "roan") is None, "it is back"


async def test_node_with_idle_open_tunnel_is_silent_since_the_last_received_frame(
    place: Proxied, far: FarCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.cluster(ID, far.config())
    await place.tunnel(ID, "roan")
    (session,) = place.sessions.of(ID)
    monkeypatch.setattr(session.mux, "silent_for", lambda now: 20.0)
    since = place.ways.silent_since(ID, "roan")
    assert since is not None
    assert since <= clock.time() - 20


async def test_tunnel_reconnect_notifies_twice_and_replaces_the_transport(place: Proxied, far: FarCluster) -> None:
    key = await place.cluster(ID, far.config())
    await place.tunnel(ID)
    before = await place.ways.of(ID)
    place.cut(ID)
    await place.until(lambda: place.changed == [key, key, key])  # went, and came back
    after = await place.ways.of(ID)
    assert (after.through, after is before) == ("tunnel", False)


async def test_new_credentials_replace_transport_without_closing_active_requests(
    place: Proxied, far: FarCluster
) -> None:
    key = await place.cluster(ID, far.config())

    async def watch(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await begin_chunks(writer)
        await chunk(writer, b"one\n")
        await reader.readline()

    far.answer = watch
    old = await place.ways.of(ID)
    with old:
        answer = await old.request("GET", "/api/v1/pods?watch=1", [])
        assert await answer.content.readline() == b"one\n"
        await place.credentials(key, far.config(user="other"))
        new = await place.ways.of(ID)
        assert new is not old
        await asyncio.sleep(0)
        assert answer.connection is not None
        assert not answer.connection.transport.is_closing()
        assert not old._session.closed
        answer.close()
    await place.until(lambda: old._session.closed)
    assert not new._session.closed


async def test_concurrent_lookups_share_a_single_transport(place: Proxied, far: FarCluster) -> None:
    await place.cluster(ID, far.config())
    found = await asyncio.gather(*(place.ways.of(ID) for _ in range(20)))
    assert len(set(map(id, found))) == 1


async def test_deleted_cluster_closes_transport_and_returns_404(place: Proxied, far: FarCluster) -> None:
    key = await place.cluster(ID, far.config())
    way = await place.ways.of(ID)
    await place.client.delete(RKE_CONTROL_PLANE.target, *key)
    await place.until(lambda: way._session.closed)
    with pytest.raises(StatusError) as gone:
        await place.ways.of(ID)
    assert gone.value.code == 404


async def test_cluster_without_kubeconfig_returns_503_with_reason(place: Proxied) -> None:
    plane = {
        "metadata": {"name": "young"},
        "spec": {"clusterName": "young", "managementClusterName": ID, "kubernetesVersion": "v1.36.4+k3s1"},
    }
    await place.client.create(RKE_CONTROL_PLANE.target, NAMESPACE, plane)
    await place.until(lambda: place.clusters.find(ID))
    with pytest.raises(StatusError) as waits:
        await place.ways.of(ID)
    assert (waits.value.code, waits.value.details) == (503, {"retryAfterSeconds": 1})
    assert waits.value.message == f"the cluster {ID} has not connected yet; its control plane has no kubeconfig yet"


@pytest.fixture
def pit() -> Iterator[str]:
    """What accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("upgraded", [False, True])
async def test_direct_connect_timeout_fails_later_requests_fast_until_tunnel_returns(
    place: Proxied, far: FarCluster, pit: str, monkeypatch: pytest.MonkeyPatch, upgraded: bool
) -> None:
    monkeypatch.setattr("remuda.access.cluster_transport.CONNECT_SECONDS", 0.2)
    monkeypatch.setattr("remuda.access.transport_pool._SHUT_SECONDS", LIMIT_SECONDS)
    await place.cluster(ID, far.config(pit))
    (await place.tunnel(ID)).stop()
    await place.until(lambda: not place.sessions.has(ID))
    way = await place.ways.of(ID)
    with pytest.raises(OSError, match=r"no connection within|[Tt]imeout"):
        await (way.connect(asyncio.Protocol) if upgraded else way.request("GET", "/version", []))
    with pytest.raises(StatusError) as told:
        await place.ways.of(ID)
    assert told.value.code == 503
    assert told.value.message.startswith(f"the cluster {ID} has not been connected since ")
    assert f"(tunnel of roan); cannot reach {pit}: no connection within " in told.value.message
    assert told.value.message.endswith("; its servers reconnect automatically")
    await place.tunnel(ID)
    assert (await place.ways.of(ID)).through == "tunnel"


async def test_cluster_without_tunnel_history_always_retries_direct_connection(
    place: Proxied, far: FarCluster, pit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.access.cluster_transport.CONNECT_SECONDS", 0.2)
    await place.cluster(ID, far.config(pit))
    way = await place.ways.of(ID)
    with pytest.raises(aiohttp.ConnectionTimeoutError):
        await way.request("GET", "/version", [])
    assert await place.ways.of(ID) is way


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", ""])
async def test_kubeconfig_without_tls_verification_is_rejected(place: Proxied, far: FarCluster, server: str) -> None:
    config = far.config(server)
    if not server:
        config["clusters"][0]["cluster"] |= {"insecure-skip-tls-verify": True}
        del config["clusters"][0]["cluster"]["certificate-authority-data"]
    await place.cluster(ID, config)
    with pytest.raises(StatusError) as refused:
        await place.ways.of(ID)
    assert "cannot be used to verify" in refused.value.message


# Our own controllers


async def test_connect_error_message_includes_cluster_connectivity(place: Proxied, far: FarCluster) -> None:
    key = await place.cluster(ID, far.config())
    why = "no answer in time"
    never = place.ways.told(key, why)
    assert never.startswith(
        f"the cluster {ID} has not connected yet; {why}; none of its servers has opened a tunnel since "
    )
    tunnel = await place.tunnel(ID)
    behind = place.ways.told(key, why)
    assert behind == f"the cluster {ID} is connected, but the request through its tunnel failed: {why}"
    tunnel.stop()
    await place.until(lambda: not place.sessions.has(ID))
    lost = place.ways.told(key, why)
    assert lost.startswith(f"the cluster {ID} has not been connected since ")
    assert lost.endswith(f"(tunnel of roan); {why}; its servers reconnect automatically")
    assert place.ways.told(Key(NAMESPACE, "somebody-elses"), why) == why


async def test_controller_client_uses_the_tunnel_without_impersonation(place: Proxied, far: FarCluster) -> None:
    key = await place.cluster(ID, far.config("https://127.0.0.1:1"))
    far.answer = version
    with pytest.raises(StatusError, match=r"127\.0\.0\.1:1"):
        await _asked(place, key)
    await place.tunnel(ID)
    assert await _asked(place, key) == b'{"gitVersion":"v1.36.4+k3s1"}'
    (seen,) = far.seen
    assert not seen.all("impersonate-user")  # as the administrator, whose certificate was asked for


async def _asked(place: Proxied, key: Key) -> bytes:
    client = await place.ways.dial(key)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await client.raw_get("/version")
    finally:
        await client.close()


async def test_controller_client_rejects_oversized_cluster_response(
    place: Proxied, far: FarCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.access.transport_pool.MOST_ANSWER_BYTES", 10)
    far.answer = version
    key = await place.cluster(ID, far.config())
    await kubeconfig_of(place, Key(NAMESPACE, "foreign"), far.config())
    for cluster in (key, Key(NAMESPACE, "foreign")):
        with pytest.raises(StatusError, match="is larger than 10 bytes"):
            await _asked(place, cluster)
    await place.tunnel(ID)
    with pytest.raises(StatusError, match="is larger than 10 bytes"):
        await _asked(place, key)


async def kubeconfig_of(place: Proxied, cluster: Key, config: dict[str, object]) -> None:
    """The contract's."""
    secret = {
        "metadata": {"name": names.kubeconfig_secret(cluster.name), "labels": {names.CLUSTER_NAME: cluster.name}},
        "data": {names.KUBECONFIG_KEY: base64.b64encode(yaml.safe_dump(config).encode()).decode()},
    }
    await place.client.create(SECRETS, cluster.namespace, secret)


async def test_externally_managed_cluster_is_dialed_with_its_own_kubeconfig(place: Proxied, far: FarCluster) -> None:
    far.answer = version
    foreign = Key(NAMESPACE, "foreign")
    await kubeconfig_of(place, foreign, far.config())
    assert await _asked(place, foreign) == b'{"gitVersion":"v1.36.4+k3s1"}'


async def test_dial_rejects_kubeconfig_pointing_at_own_proxy(place: Proxied) -> None:
    foreign = Key(NAMESPACE, "foreign")
    await kubeconfig_of(place, foreign, kubeconfig.build(place.url(ID), token="t"))
    with pytest.raises(Retryable, match="leads through this manager"):
        await place.ways.dial(foreign)


async def test_transport_pool_close_leaves_no_unclosed_sessions(
    place: Proxied, far: FarCluster, recwarn: pytest.WarningsRecorder
) -> None:
    await place.cluster(ID, far.config())
    await place.ways.of(ID)
    await place.ways.close()
    gc.collect()
    assert not [one for one in recwarn if "Unclosed" in str(one.message)]
