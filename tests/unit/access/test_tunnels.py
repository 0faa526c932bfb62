"""Who may open a tunnel. Clusters and Machines are objects of a real engine, and so are sessions and their clients."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.access.clusters import Clusters
from remuda.access.tunnels import Authorizer, tunnel_handler
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import names as capi_names
from remuda.capi.definitions import definitions as core
from remuda.capi.remote import cluster_secrets
from remuda.capi.types import MACHINE
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.providers.controlplane.definitions import definitions as control_plane
from remuda.providers.controlplane.render import tunnel as tunnel_tokens
from remuda.providers.shared import names
from remuda.providers.shared.secrets import encoded
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.runtime.caches import Caches
from remuda.runtime.definitions import install
from remuda.tunnel import client as tunnel_client
from remuda.tunnel.mux import Timing
from remuda.tunnel.server import TunnelRequest, TunnelServer
from remuda.tunnel.session_table import Key, Sessions
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.proxied import AuditLines

NAMESPACE = "ranch"
LIVELY = Timing(ping_every=0.5, heard_within=LIMIT_SECONDS, sent_within=LIMIT_SECONDS)
CONTROL_PLANE = {names.CONTROL_PLANE_ROLE: "true", names.ETCD_ROLE: "true"}


class TunnelAuthorizationHarness:
    def __init__(self, engine: ApiServer) -> None:
        self.engine = engine
        self.client = engine.client()
        self.caches = Caches(self.client)
        self.sessions = Sessions()
        self.clusters = Clusters(self.caches)
        self.authorizer = Authorizer(self.client, self.caches, self.clusters, self.sessions)
        self.machines = self.caches.of(MACHINE)
        self._clients: list[tuple[tunnel_client.TunnelClient, threading.Thread]] = []

    async def start(self) -> None:
        await install(self.client, [*core(), *control_plane()])
        await self.client.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        await self.caches.start()
        refused = self.authorizer.refused_to_dial
        server = TunnelServer(self.authorizer, self.sessions, timing=LIVELY, refused=refused)
        self.engine.front.mount("/v3/connect", tunnel_handler(server))

    async def stop(self) -> None:
        for client, _ in self._clients:
            client.stop()
        for _, thread in self._clients:
            await asyncio.to_thread(thread.join, LIMIT_SECONDS)
        await self.caches.close()

    # What there is

    async def cluster(self, name: str, key: bytes = b"a key") -> None:
        spec = {"clusterName": name, "managementClusterName": f"c-{name}", "kubernetesVersion": "v1.36.4+k3s1"}
        await self.client.create(RKE_CONTROL_PLANE.target, NAMESPACE, {"metadata": {"name": name}, "spec": spec})
        if key:
            await self.client.create(SECRETS, NAMESPACE, _state(name, key))
            await self.until(lambda: self.state_version(name))
        await self.until(lambda: self.clusters.plane(f"c-{name}"))

    async def machine(self, name: str, cluster: str, **metadata: Any) -> str:
        """Its uid."""
        obj = {
            "metadata": {"name": name, "labels": CONTROL_PLANE, **metadata},
            "spec": {
                "clusterName": cluster,
                "bootstrap": {"dataSecretName": "data"},
                "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "PonyMachine", "name": name},
            },
        }
        made = json.loads(await self.client.create(MACHINE.target, NAMESPACE, obj))
        await self.until(lambda: self.machines.get(NAMESPACE, name))
        return str(made["metadata"]["uid"])

    def state_version(self, cluster: str) -> str:
        """Of its Secret, as it is known."""
        seen = cluster_secrets(self.caches).get(NAMESPACE, f"{cluster}-rke-state")
        return seen.metadata.resource_version if seen is not None else ""

    # Who comes

    async def ask(self, token: str | None, scheme: str = "Bearer") -> Key | None:
        headers = {} if token is None else {"authorization": f"{scheme} {token}"}
        return await self.authorizer(TunnelRequest("GET", headers, "10.0.0.9:4711"))

    async def connect(self, token: str) -> tunnel_client.TunnelClient:
        """A client that is on its way."""
        settings = tunnel_client.TunnelSettings(
            urls=(self.engine.url.replace("https://", "wss://") + "/v3/connect",),
            authorities=self.engine.pki.ca_certificate_pem.decode(),
            headers=(("Authorization", f"Bearer {token}"),),
            timing=LIVELY,
            waits=tunnel_client.ReconnectDelays(first=0.05, longest=0.2, attempt=LIMIT_SECONDS),
        )
        client = tunnel_client.TunnelClient(lambda: settings)
        thread = threading.Thread(target=client.run, daemon=True)
        thread.start()
        self._clients.append((client, thread))
        return client

    def nodes(self, cluster: str) -> set[str]:
        return {session.key.node for session in self.sessions.of(cluster)}

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not true():
                await asyncio.sleep(0.01)


def _state(cluster: str, key: bytes) -> dict[str, Any]:
    metadata = {"name": f"{cluster}-rke-state", "labels": {capi_names.CLUSTER_NAME: cluster}}
    return {"metadata": metadata, "data": encoded({"tunnelKey": key})}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[TunnelAuthorizationHarness]:
    engine = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    try:
        harness = TunnelAuthorizationHarness(engine)
        await harness.start()
        try:
            yield harness
        finally:
            await harness.stop()
    finally:
        await engine.stop()


def token(cluster: str, machine: str, uid: str, key: bytes = b"a key") -> str:
    return tunnel_tokens.token(key, cluster, machine, uid)


@pytest.fixture
def refusals(audit: AuditLines) -> Callable[[], list[str]]:
    return lambda: [json.dumps(line) for line in audit.lines]


async def refused(harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]], shown: str, why: str) -> None:
    assert await harness.ask(shown) is None
    (line,) = refusals()
    said = json.loads(line)
    assert (said["from"], said["code"], said["path"]) == ("10.0.0.9:4711", 401, "/v3/connect")
    assert why in said["why"]
    mac = shown.rpartition(".")[2]
    assert not mac or mac not in line


async def test_control_plane_node_token_is_accepted(harness: TunnelAuthorizationHarness) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    assert await harness.ask(token("c-prairie", "roan", uid)) == Key("c-prairie", "roan")
    assert await harness.ask(token("c-prairie", "roan", uid), "bearer") == Key("c-prairie", "roan")


async def test_machine_name_with_dots_is_accepted_in_token(harness: TunnelAuthorizationHarness) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan.stable.example", "prairie")
    assert await harness.ask(token("c-prairie", "roan.stable.example", uid)) == Key("c-prairie", "roan.stable.example")


async def test_tunnel_token_of_another_cluster_is_rejected(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]]
) -> None:
    await harness.cluster("prairie", b"one key")
    await harness.cluster("meadow", b"another key")
    uid = await harness.machine("roan", "prairie")
    await harness.machine("bay", "meadow")
    await refused(
        harness, refusals, token("c-meadow", "bay", uid, b"one key"), "the token does not belong to this Machine"
    )


async def test_cluster_with_duplicate_id_cannot_open_tunnel(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]]
) -> None:
    await harness.cluster("prairie", b"one key")
    uid = await harness.machine("roan", "prairie")
    thief = {"clusterName": "thief", "managementClusterName": "c-prairie", "kubernetesVersion": "v1.36.4+k3s1"}
    await harness.client.create(RKE_CONTROL_PLANE.target, NAMESPACE, {"metadata": {"name": "thief"}, "spec": thief})
    await harness.client.create(SECRETS, NAMESPACE, _state("thief", b"its key"))
    stolen = await harness.machine("nag", "thief")
    await harness.until(lambda: harness.clusters.planes.get(NAMESPACE, "thief"))
    assert await harness.ask(token("c-prairie", "nag", stolen, b"its key")) is None
    assert await harness.ask(token("c-prairie", "roan", uid, b"its key")) is None
    assert len(refusals()) == 2


@pytest.mark.parametrize(
    ("cluster", "machine", "why"),
    [
        ("c-nowhere", "roan", "no cluster has this id"),
        ("c-prairie", "nobody", "the cluster has no such Machine"),
        ("c-prairie", "stranger", "the cluster has no such Machine"),
        ("c-prairie", "mule", "the Machine is not part of the control plane"),
        ("c-prairie", "bay", "the token does not belong to this Machine"),
    ],
)
async def test_tunnel_is_denied_unless_token_names_own_control_plane_machine(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]], cluster: str, machine: str, why: str
) -> None:
    """Each with a mac that is right for what it claims, except for one that claims to be another node."""
    await harness.cluster("prairie")
    await harness.cluster("meadow")
    uids = {"roan": await harness.machine("roan", "prairie"), "stranger": await harness.machine("stranger", "meadow")}
    uids["mule"] = await harness.machine("mule", "prairie", labels={names.WORKER_ROLE: "true"})
    await harness.machine("bay", "prairie")
    await refused(harness, refusals, token(cluster, machine, uids.get(machine, uids["roan"])), why)


async def test_deleting_machine_may_reconnect_until_its_finalizers_are_removed(
    harness: TunnelAuthorizationHarness,
) -> None:
    """Its end may need the API of its cluster, to which nothing else may lead; also after the manager was started
    anew, as seen from a node whose session was ended."""
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie", finalizers=["example.com/held"])
    client = await harness.connect(token("c-prairie", "roan", uid))
    await harness.until(lambda: harness.nodes("c-prairie") == {"roan"})
    await harness.client.delete(MACHINE.target, NAMESPACE, "roan")
    await harness.until(lambda: (found := harness.machines.get(NAMESPACE, "roan")) and found.metadata.deleting)
    (first,) = harness.sessions.of("c-prairie")
    harness.sessions.end_all("the manager stops")
    await harness.until(lambda: (now := harness.sessions.of("c-prairie")) and first not in now)
    await harness.client.patch(MACHINE.target, NAMESPACE, "roan", {"metadata": {"finalizers": None}})
    await harness.until(lambda: "401" in client.status.last_disconnect_reason)
    assert not harness.nodes("c-prairie")


async def test_tunnel_token_of_deleted_machine_with_same_name_is_rejected(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]]
) -> None:
    await harness.cluster("prairie")
    old = await harness.machine("roan", "prairie")
    await harness.client.delete(MACHINE.target, NAMESPACE, "roan")
    await harness.until(lambda: harness.machines.get(NAMESPACE, "roan") is None)
    new = await harness.machine("roan", "prairie")
    assert new != old
    await refused(harness, refusals, token("c-prairie", "roan", old), "the token does not belong to this Machine")


@pytest.mark.parametrize("forge", ["other key", "empty", "cut", "turned"])
async def test_tunnel_token_with_forged_mac_is_rejected(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]], forge: str
) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    good = token("c-prairie", "roan", uid)
    forged = {
        "other key": token("c-prairie", "roan", uid, b"my own key"),
        "empty": token("c-prairie", "roan", uid, b""),
        "cut": good[:-1],
        "turned": good[:-2] + ("1" if good[-2] == "0" else "0") + good[-1],
    }
    assert forged[forge] != good
    await refused(harness, refusals, forged[forge], "the token does not belong to this Machine")


async def test_tunnel_token_is_rejected_when_cluster_has_no_key(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]]
) -> None:
    await harness.cluster("prairie", b"")
    uid = await harness.machine("roan", "prairie")
    assert await harness.ask(token("c-prairie", "roan", uid, b"")) is None
    await harness.client.create(SECRETS, NAMESPACE, _state("prairie", b" "))
    assert await harness.ask(token("c-prairie", "roan", uid, b"")) is None
    assert "cannot read the key" in refusals()[0]


@pytest.mark.parametrize("shown", [None, "", ".", "..", "a.b", "a..c", "c-prairie", "é.b.c", "a.b." + "c" * 600])
async def test_malformed_tunnel_token_is_rejected(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]], shown: str | None
) -> None:
    assert await harness.ask(shown) is None
    (line,) = refusals()
    assert "it has no tunnel token" in line


async def test_tunnel_token_with_non_bearer_scheme_is_rejected(harness: TunnelAuthorizationHarness) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    assert await harness.ask(token("c-prairie", "roan", uid), "Basic") is None


async def test_repeated_tunnel_rejection_is_audited_once(
    harness: TunnelAuthorizationHarness, refusals: Callable[[], list[str]]
) -> None:
    for _ in range(20):
        assert await harness.ask("c-nowhere.roan.mac") is None
    assert len(refusals()) == 1


async def test_tunnel_session_is_displaced_only_by_the_same_node(harness: TunnelAuthorizationHarness) -> None:
    await harness.cluster("prairie")
    roan, bay = await harness.machine("roan", "prairie"), await harness.machine("bay", "prairie")
    await harness.connect(token("c-prairie", "roan", roan))
    await harness.until(lambda: harness.nodes("c-prairie") == {"roan"})
    (first,) = harness.sessions.of("c-prairie")
    await harness.connect(token("c-prairie", "bay", bay))
    await harness.until(lambda: harness.nodes("c-prairie") == {"roan", "bay"})
    forger = await harness.connect(token("c-prairie", "roan", bay))
    await harness.until(lambda: forger.status.attempts > 1)
    assert first in harness.sessions.of("c-prairie")
    assert harness.sessions.last_end(Key("c-prairie", "roan")) is None
    await harness.connect(token("c-prairie", "roan", roan))
    await harness.until(lambda: harness.sessions.last_end(Key("c-prairie", "roan")))
    ended = harness.sessions.last_end(Key("c-prairie", "roan"))
    assert ended is not None
    assert "displaced by a new session" in ended.reason


async def test_late_deletion_of_an_old_machine_keeps_session_of_new_machine_of_that_name(
    harness: TunnelAuthorizationHarness,
) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    await harness.connect(token("c-prairie", "roan", uid))
    await harness.until(lambda: harness.nodes("c-prairie") == {"roan"})
    old = harness.machines.get(NAMESPACE, "roan")
    assert old is not None
    before = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, uid="old"))
    harness.authorizer._admitted["old"] = Key("c-prairie", "roan")
    harness.authorizer._machine_changed(before, None, False)
    assert harness.nodes("c-prairie") == {"roan"}


async def test_tunnel_session_ends_when_its_machine_is_deleted_and_cannot_reconnect(
    harness: TunnelAuthorizationHarness,
) -> None:
    await harness.cluster("prairie")
    uid, other = await harness.machine("roan", "prairie"), await harness.machine("bay", "prairie")
    client = await harness.connect(token("c-prairie", "roan", uid))
    await harness.connect(token("c-prairie", "bay", other))
    await harness.until(lambda: harness.nodes("c-prairie") == {"roan", "bay"})
    await harness.client.delete(MACHINE.target, NAMESPACE, "roan")
    await harness.until(lambda: harness.nodes("c-prairie") == {"bay"})
    await harness.until(lambda: "401" in client.status.last_disconnect_reason)
    ended = harness.sessions.last_end(Key("c-prairie", "roan"))
    assert ended is not None
    assert ended.reason == "its Machine was deleted"


async def test_session_ends_when_its_machine_leaves_the_control_plane(harness: TunnelAuthorizationHarness) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    client = await harness.connect(token("c-prairie", "roan", uid))
    await harness.until(lambda: harness.nodes("c-prairie") == {"roan"})
    await harness.client.patch(
        MACHINE.target, NAMESPACE, "roan", {"metadata": {"labels": {names.CONTROL_PLANE_ROLE: None}}}
    )
    await harness.until(lambda: "401" in client.status.last_disconnect_reason)
    assert not harness.nodes("c-prairie")


async def test_replaced_tunnel_key_takes_effect_and_invalidates_old_tokens(harness: TunnelAuthorizationHarness) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    assert await harness.ask(token("c-prairie", "roan", uid)) is not None
    value = await harness.client.patch(SECRETS, NAMESPACE, "prairie-rke-state", _state("prairie", b"a new key"))
    version = json.loads(value)["metadata"]["resourceVersion"]
    await harness.until(lambda: harness.state_version("prairie") == version)
    assert await harness.ask(token("c-prairie", "roan", uid)) is None
    assert await harness.ask(token("c-prairie", "roan", uid, b"a new key")) is not None


async def test_tunnel_key_in_unlabelled_secret_is_picked_up(
    harness: TunnelAuthorizationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.cluster("prairie", b"")
    uid = await harness.machine("roan", "prairie")
    assert await harness.ask(token("c-prairie", "roan", uid)) is None
    bare = _state("prairie", b"a key")
    del bare["metadata"]["labels"]
    await harness.client.create(SECRETS, NAMESPACE, bare)
    monkeypatch.setattr("remuda.access.tunnels._UNWATCHED_SECONDS", 0.0)
    assert await harness.ask(token("c-prairie", "roan", uid)) is not None


async def test_forged_tunnel_tokens_cause_no_extra_secret_reads(
    harness: TunnelAuthorizationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    reads: list[object] = []
    get = harness.client.get

    async def counted(*arguments: Any, **more: Any) -> bytes:
        reads.append(arguments)
        return await get(*arguments, **more)

    monkeypatch.setattr(harness.client, "get", counted)
    for number in range(50):
        assert await harness.ask(token("c-prairie", "roan", uid, b"key %d" % number)) is None
    assert len(reads) <= 1


async def test_dial_request_from_node_is_denied_and_audited(
    harness: TunnelAuthorizationHarness, audit: AuditLines
) -> None:
    await harness.cluster("prairie")
    uid = await harness.machine("roan", "prairie")
    client = await harness.connect(token("c-prairie", "roan", uid))
    await harness.until(lambda: client.status.connected_to)
    session = client._session
    assert session is not None
    wanted = f"127.0.0.1:{harness.engine.front.port}"  # what listens here

    def ask() -> None:
        """From the client's own thread."""
        session._on_tick = None
        session.mux.open("tcp", wanted).write(b"GET / HTTP/1.1\r\n\r\n")

    session._on_tick = ask
    await harness.until(lambda: audit.lines)
    (line,) = audit.lines
    assert (line["user"], line["cluster"], line["code"]) == ("tunnel:c-prairie:roan", "c-prairie", 403)
    assert f"requested a connection to tcp/{wanted}" in line["why"]
    assert line["from"].startswith("127.0.0.1:")
