"""Several servers and agents, as real processes: joining, majorities, leaving, and who is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from remuda.kube.client import Target
from remuda.kube.errors import AlreadyExists, StatusError, ignore_not_found
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import ClientConfig
from remuda.lab.nano import tokens
from remuda.lab.nano.handover import HandoverIntent
from remuda.lab.nano.layout import NanoLayout
from remuda.lab.nano.members import MemberList
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.nano import AGENT_TOKEN, NODES, RENEWING, TOKEN, Host, NanoHosts, Obj, ask, eventually

T = TypeVar("T")

CONFIG_MAPS = Target("v1", "configmaps")
REVIEWS = Target("authentication.k8s.io/v1", "selfsubjectreviews")
REMOVE = {"metadata": {"annotations": {"etcd.nano.cattle.io/remove": "true"}}}


async def write(by: Host, name: str) -> None:
    await by.client().create(CONFIG_MAPS, "default", {"metadata": {"name": name}})


async def members(by: Host) -> list[Obj]:
    found: list[Obj] = json.loads(await by.client().raw_get("/db/info"))["members"]
    return found


async def voters(by: Host) -> set[str]:
    return {one["name"].rpartition("-")[0] for one in await members(by) if not one["isLearner"]}


async def until_voters(by: Host, *names: str) -> None:
    async def are() -> bool:
        return await voters(by) == set(names)

    await eventually(are, f"{', '.join(names)} vote", lambda: by.log)


def condition(node: Obj, kind: str) -> str:
    return next((str(one["status"]) for one in node["status"].get("conditions", ()) if one["type"] == kind), "")


async def until_refused(by: Host, name: str) -> StatusError:
    refusals: list[StatusError] = []

    async def is_refused() -> bool:
        try:
            await by.client().create(CONFIG_MAPS, "default", {"metadata": {"generateName": f"{name}-"}})
        except StatusError as error:
            refusals.append(error)
            return True
        return False

    await eventually(is_refused, "writes are refused", lambda: by.log)
    return refusals[-1]


async def until_taken(by: Host, act: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until it succeeds: on a busy machine the heartbeats of members that live come too late, too."""
    answers: list[T] = []

    async def is_taken() -> bool:
        answers.append(await act())
        return True

    await eventually(is_taken, "requests are taken", lambda: by.log)
    return answers[0]


async def until_written(by: Host, name: str) -> None:
    async def write_once() -> None:
        with contextlib.suppress(AlreadyExists):  # by an attempt before, whose answer was lost
            await write(by, name)

    await until_taken(by, write_once)


async def until_patched(by: Host, node: str, patch: Obj, **more: str) -> None:
    await until_taken(by, lambda: by.client().patch(NODES, "", node, patch, **more))


async def until_deleted(by: Host, node: str) -> None:
    async def delete() -> None:
        with ignore_not_found():
            await by.client().delete(NODES, "", node)

    await until_taken(by, delete)


async def until_missed(by: Host, lost: Host) -> None:
    """Wait until the server with the data has not heard of another one for the length of an election."""

    async def is_missed() -> bool:
        code, heard = await ask(by, "/v1-nano/apiservers", user=f"node:{AGENT_TOKEN}")
        return code == 200 and f"{lost.address}:6443" not in json.loads(heard)

    await eventually(is_missed, f"{lost.name} is missed", lambda: by.log)


async def test_three_server_cluster_survives_one_loss_and_rejects_writes_without_quorum(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one")
    await one.up()
    two, three = (
        nano_hosts.server("two", by=one),
        nano_hosts.server("three", by=one),
    )  # at once: one joins after the other
    await two.up()
    await three.up()
    await until_voters(one, "one", "two", "three")
    assert one.log.count("joins as a learner") == 2
    agent = nano_hosts.agent("agent", by=two, node_label=["a=b"])
    await agent.up()
    for host in (one, two, three):  # every server answers for the same API, and knows who asks
        found = await until_taken(host, lambda host=host: host.client().list(NODES))
        nodes = [json.loads(item) for item in found.items]
        assert {node["metadata"]["name"] for node in nodes} == {"one", "two", "three", "agent"}
        me = json.loads(
            await until_taken(host, lambda host=host: host.client().create(REVIEWS, "", {"kind": "SelfSubjectReview"}))
        )
        assert me["status"]["userInfo"]["username"] == "system:admin"
        await until_voters(host, "one", "two", "three")
    await until_written(three, "by-three")
    assert json.loads(await until_taken(two, lambda: two.client().get(CONFIG_MAPS, "default", "by-three")))
    seen = asyncio.create_task(_first_change(two, "watched"))  # a watch that is passed on
    await asyncio.sleep(0.2)
    await until_written(one, "watched")
    assert await asyncio.wait_for(seen, LIMIT_SECONDS) == "ADDED"

    async def says_voter() -> bool:
        node = await one.node("three")
        name = node["metadata"]["annotations"].get("etcd.nano.cattle.io/node-name", "")
        return condition(node, "EtcdIsVoter") == "True" and name.startswith("three-")

    await eventually(says_voter, "the Node of three says that it votes", lambda: one.log)

    three.kill()
    await until_missed(one, three)
    await until_written(one, "two-of-three")
    two.kill()
    refused = await until_refused(one, "one-of-three")
    assert refused.code == 500
    assert "etcdserver: no leader" in str(refused)
    with pytest.raises(StatusError, match="etcd failed"):
        await one.client().raw_get("/readyz")
    assert json.loads(await one.client().get(CONFIG_MAPS, "default", "two-of-three"))  # reading goes on

    two.start("server")  # comes back as who it was
    await two.up()
    await until_written(one, "two-of-three-again")
    assert len(await members(one)) == 3
    assert await until_taken(one, lambda: one.client().raw_get("/readyz")) == b"ok"
    one.kill()  # the one with the data
    with pytest.raises(StatusError) as lost:
        await write(two, "without-the-data")
    assert lost.value.code == 503
    await one.close()
    one.start("server")
    await one.up()
    await until_written(two, "with-the-data")


async def _first_change(by: Host, name: str) -> str:
    async for change in by.client().watch(CONFIG_MAPS, "default", field_selector=f"metadata.name={name}"):
        if change.type != "BOOKMARK":
            return change.type
    return ""


async def test_member_leaves_on_node_annotation_or_deletion_but_not_below_quorum(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one")
    await one.up()
    two = nano_hosts.server("two", by=one)
    await two.up()
    three = nano_hosts.server("three", by=two)
    await three.up()
    await until_voters(one, "one", "two", "three")
    await until_patched(one, "three", REMOVE)

    async def has_left() -> bool:
        annotations = (await one.node("three"))["metadata"]["annotations"]
        return annotations.get("etcd.nano.cattle.io/removed-node-name", "").startswith("three-")

    await eventually(has_left, "three has left", lambda: one.log)
    assert await voters(one) == {"one", "two"}
    assert await three.ended() == 1
    three.start("server")  # and does not come back by itself
    assert await three.ended() == 1
    assert "has been removed from the cluster" in three.log

    two.kill()
    await until_refused(one, "nothing")
    with pytest.raises(StatusError, match="no leader"):
        await one.client().patch(NODES, "", "two", REMOVE)  # not even that can be written
    two.start("server")
    await two.up()
    await until_written(one, "something")
    await until_deleted(one, "two")
    await until_voters(one, "one")
    assert await two.ended() == 1
    await until_patched(one, "one", REMOVE)

    async def is_refused() -> bool:
        return "cannot remove" in one.log

    await eventually(is_refused, "the last voter stays", lambda: one.log)
    assert await voters(one) == {"one"}


async def test_leader_transfers_data_before_leaving_cluster(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one")
    await one.up()
    two, three = nano_hosts.server("two", by=one), nano_hosts.server("three", by=one)
    await two.up()
    await three.up()
    await until_voters(one, "one", "two", "three")
    agent = nano_hosts.agent("agent", by=one)
    await agent.up()
    await until_written(one, "kept")
    before = (one.data / "server/db/cluster.json").read_bytes()
    await until_patched(one, "one", REMOVE)
    assert await one.ended() == 1
    await until_written(two, "by-two")
    await until_written(three, "by-three")
    assert json.loads(await until_taken(three, lambda: three.client().get(CONFIG_MAPS, "default", "kept")))
    annotations = (await until_taken(two, lambda: two.node("one")))["metadata"]["annotations"]
    assert annotations["etcd.nano.cattle.io/removed-node-name"].startswith("one-")
    await until_voters(two, "two", "three")
    await until_voters(three, "two", "three")
    one.start("server")
    assert await one.ended() == 1  # it has left for good
    _forget_the_end(one, before)  # as if it had been killed before it knew how it ended
    one.start("server")
    assert await one.ended() == 1
    assert (one.data / "server/db/etcd/tombstone").exists()
    leader = two if "this server now holds the data" in two.log else three
    leader.kill()
    await leader.close()
    leader.start("server")
    await leader.up()
    await until_written(two, "after-a-restart")
    # The agent has never been told of them but by the cluster itself.
    await until_patched(two, "agent", {"status": {"conditions": []}}, subresource="status")

    async def is_ready() -> bool:
        return condition(await two.node("agent"), "Ready") == "True"

    await eventually(is_ready, "the agent goes on with the servers that are left", lambda: agent.log)


def _forget_the_end(host: Host, before: bytes) -> None:
    layout = NanoLayout(host.data)
    successor = msgspec.json.decode(layout.cluster.read_bytes(), type=MemberList)
    new_leader = successor.find(successor.leader)
    assert new_leader is not None
    intent = HandoverIntent(new_leader=new_leader, successor=successor, source=host.url)
    layout.hand_over.write_bytes(msgspec.json.encode(intent))
    layout.cluster.write_bytes(before)
    layout.tombstone.unlink()


async def test_etcd_only_and_control_plane_only_servers_form_one_cluster(nano_hosts: NanoHosts) -> None:
    no_api = {"disable_apiserver": True, "disable_controller_manager": True, "disable_scheduler": True}
    etcd = nano_hosts.server("etcd", **no_api)

    async def pings() -> bool:
        return await _status(etcd, "/readyz") == 503

    await eventually(pings, "a server of etcd alone has no API", lambda: etcd.log)
    plane = nano_hosts.server("plane", by=etcd, disable_etcd=True)
    await plane.up()
    await etcd.up()  # whose kubelet has waited for an API
    agent = nano_hosts.agent("agent", by=etcd)
    await agent.up()
    roles = {
        "etcd": {"node-role.kubernetes.io/etcd"},
        "plane": {"node-role.kubernetes.io/control-plane"},
        "agent": set(),
    }

    async def have_roles() -> bool:
        nodes = {name: (await plane.node(name))["metadata"]["labels"] for name in roles}
        return roles == {name: {key for key in labels if key.startswith("node-role")} for name, labels in nodes.items()}

    await eventually(have_roles, "the Nodes have the labels of their roles", lambda: plane.log)
    await until_voters(plane, "etcd")
    await until_written(plane, "written")
    with pytest.raises(StatusError, match="apiserver disabled"):
        await write(etcd, "not-by-etcd")


async def _status(host: Host, path: str) -> int:
    try:
        await host.client().raw_get(path)
    except StatusError as error:
        return error.code
    except Exception:  # not started yet: there is no kubeconfig
        return 0
    return 200


async def test_join_with_wrong_token_ca_password_or_configuration_is_rejected(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one", cluster_cidr="10.40.0.0/16")
    await one.up()
    ca = (one.tls / "server-ca.crt").read_bytes()
    pinned = tokens.full("node", AGENT_TOKEN, ca)
    right = nano_hosts.agent("right", by=one, token=pinned)
    wrong_token = nano_hosts.agent("wrong-token", by=one, token="guessed")
    wrong_ca = nano_hosts.agent("wrong-ca", by=one, token=f"K10{'0' * 64}::node:{AGENT_TOKEN}")
    agent_as_server = nano_hosts.server("agent-as-server", by=one, token=AGENT_TOKEN)
    other_cidr = nano_hosts.server("other-cidr", by=one, cluster_cidr="10.50.0.0/16")
    for host, words in (
        (wrong_token, "refused to let this node join"),
        (wrong_ca, "token CA hash does not match the Cluster CA certificate hash"),
        (agent_as_server, "refused to let this server join"),
        (other_cidr, "critical configuration value mismatch between servers: cluster-cidr"),
    ):
        assert await host.ended() == 1, host.log
        assert words in host.log
    await right.up()
    impostor = nano_hosts.host("impostor")
    impostor.configure(node_name="right", server=one.url, token=AGENT_TOKEN)
    impostor.start("agent")

    async def is_refused() -> bool:
        return "node password rejected" in impostor.log

    await eventually(is_refused, "a second host cannot be the same node", lambda: impostor.log)
    assert TOKEN not in "".join(host.log for host in nano_hosts.hosts)
    right.kill()
    await one.client().delete(NODES, "", "right")
    await impostor.up()  # the name is free


async def test_node_may_write_only_its_own_objects_and_turns_unknown_when_silent(nano_hosts: NanoHosts) -> None:
    nano_hosts.program = RENEWING
    one = nano_hosts.server("one", kube_controller_manager_arg=["node-monitor-grace-period=5s"])
    await one.up()
    agent = nano_hosts.agent("agent", by=one)
    await agent.up()

    own = agent.data / "agent"
    access = ClientConfig(
        server=one.url,
        ca=own / "server-ca.crt",
        client_certificate=own / "client-kubelet.crt",
        client_key=own / "client-kubelet.key",
    )
    client = HttpClient(access)
    try:
        label = {"metadata": {"labels": {"x": "y"}}}
        await client.patch(NODES, "", "agent", label)
        with pytest.raises(StatusError, match="is not allowed to modify"):
            await client.patch(NODES, "", "one", label)
        with pytest.raises(StatusError, match="forbidden"):
            await client.list(Target("v1", "secrets"), "kube-system")
    finally:
        await client.close()
    agent.kill()

    async def is_unknown() -> bool:
        node = await one.node("agent")
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        return condition(node, "Ready") == "Unknown" and taints == {"node.kubernetes.io/unreachable"}

    await eventually(is_unknown, "the silent Node is Unknown", lambda: one.log)
    agent.start("agent")

    async def is_back() -> bool:
        node = await one.node("agent")
        return condition(node, "Ready") == "True" and not node["spec"].get("taints")

    await eventually(is_back, "the Node is back", lambda: agent.log)

    async def is_ready() -> bool:
        return condition(await one.node(), "Ready") == "True"

    await eventually(is_ready, "the server's own Node is Ready", lambda: one.log)
