"""Managers on the engine: from start to end, with nothing left; alone and with others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from remuda.apiserver.server import ApiServer
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, Kind, Object
from remuda.lab.simulator.loop import VirtualLoop
from remuda.runtime.draft import Draft, save
from remuda.runtime.election import LEASE, Election, LeadershipLost
from remuda.runtime.events import EVENTS
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome
from remuda.runtime.steps import step
from tests.unit.runtime.things import CONFIG_MAP, create, until, virtually

LEASE_KEY = Key("default", "remuda")
ANSWER = step("test-manager.answer", "answers in the object")


class Answering:
    """A manager with one controller, which answers every ConfigMap that asks something."""

    def __init__(self, client: Client, name: str = "remuda") -> None:
        self.manager = Manager(client, name=name)
        self.things = self.manager.caches.of(CONFIG_MAP)
        self.manager.controller("answer", CONFIG_MAP, self.reconcile)
        self.seen: list[str] = []
        self.slow = 0.0

    async def reconcile(self, key: Key) -> Outcome:
        value = self.things.raw(*key)
        if value is None:
            return DONE
        draft = Draft(CONFIG_MAP.target, value)
        data = draft.obj.get("data") or {}
        if "question" not in data:
            return DONE
        await asyncio.sleep(self.slow)
        self.seen.append(key.name)
        data["answer"] = data["question"].upper()
        saved = await save(self.manager.client, draft, ANSWER)
        written = self.things.get(*key)
        assert written is not None
        assert written.data["answer"] == data["answer"], "a reconcile reads what it has written"
        if saved != value:
            self.manager.events.normal(written, "Answered", data["answer"])
        return DONE


def everything() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


async def answer(client: Client, name: str) -> str | None:
    found = CONFIG_MAP.decode(await client.get(CONFIG_MAP.target, "default", name))
    return found.data.get("answer")


async def test_manager_reconciles_and_leaves_no_tasks_after_stop(client: Client) -> None:
    before = everything()
    await create(client, "early", {"question": "now?"})
    answering = Answering(client)
    stop = asyncio.Event()
    running = asyncio.ensure_future(answering.manager.run(stop))
    await until(lambda: "early" in answering.seen)
    await create(client, "late", {"question": "later?"})
    await until(lambda: "late" in answering.seen)
    await until(lambda: answering.manager.idle)
    stop.set()
    await running
    assert (await answer(client, "early"), await answer(client, "late")) == ("NOW?", "LATER?")
    assert len((await client.list(EVENTS)).items) == 2
    assert everything() - before == set()


async def test_repeated_reconcile_without_changes_writes_nothing(client: Client) -> None:
    answering = Answering(client)
    await answering.manager.start()
    answering.manager.lead()
    await create(client, "a", {"question": "now?"})
    await until(lambda: answering.manager.ledger.writes == 2)
    await until(lambda: answering.manager.idle)
    for _ in range(3):
        answering.manager.controllers["answer"].enqueue(Key("default", "a"))
        await until(lambda: answering.manager.idle)
    assert answering.seen.count("a") >= 2
    assert answering.manager.ledger.writes_by == {("answer", "patch configmaps"): 1, ("", "create events"): 1}
    await answering.manager.stop()


async def test_writes_of_manager_client_are_visible_in_cache_immediately(client: Client) -> None:
    answering = Answering(client)
    manager = answering.manager
    await manager.start()
    await manager.client.create(CONFIG_MAP.target, "default", {"metadata": {"generateName": "made-"}})
    (made,) = [thing for thing in answering.things.all() if thing.metadata.name.startswith("made-")]
    await manager.client.delete(CONFIG_MAP.target, *made.key, dry_run=True)
    assert answering.things.get(*made.key) is not None
    await manager.client.delete(CONFIG_MAP.target, *made.key)
    assert answering.things.get(*made.key) is None
    obj = msgspec.json.decode(await manager.client.create(CONFIG_MAP.target, "default", {"metadata": {"name": "b"}}))
    obj["data"] = {"k": "v"}
    await manager.client.update(CONFIG_MAP.target, "default", "b", obj)
    updated = answering.things.get("default", "b")
    assert updated is not None
    assert updated.data == {"k": "v"}
    await manager.client.delete_collection(CONFIG_MAP.target, "default", field_selector="metadata.name=b")
    verbs = [act for _, act in manager.ledger.writes_by]
    assert verbs == ["create configmaps", "delete configmaps", "update configmaps", "deletecollection configmaps"]
    await manager.stop()


async def test_controller_follows_given_empty_cache(client: Client) -> None:
    manager, seen = Manager(client, name="remuda"), list[str]()

    async def reconcile(key: Key) -> Outcome:
        seen.append(key.name)
        return DONE

    manager.caches.of(CONFIG_MAP, label_selector="other")
    chosen = manager.caches.of(CONFIG_MAP, label_selector="chosen")
    manager.controller("choose", CONFIG_MAP, reconcile, informer=chosen)
    await manager.start()
    manager.lead()
    await create(client, "that", labels={"other": "yes"})
    await create(client, "this", labels={"chosen": "yes"})
    await until(lambda: seen)
    await manager.stop()
    assert seen == ["this"]


async def test_duplicate_controller_name_is_rejected(client: Client) -> None:
    manager = Answering(client).manager
    with pytest.raises(ValueError, match="two controllers are called answer"):
        manager.controller("answer", CONFIG_MAP, lambda key: asyncio.sleep(0, DONE))


async def test_at_end_callbacks_run_after_controllers_stop(client: Client) -> None:
    answering = Answering(client)
    ended: list[bool] = []

    async def close() -> None:
        ended.append(answering.manager.idle)

    answering.manager.at_end(close)
    await answering.manager.start()
    answering.manager.lead()
    await create(client, "a", {"question": "?"})
    await until(lambda: answering.seen)
    await answering.manager.stop()
    assert ended == [True]


async def test_at_start_callbacks_run_with_synced_caches_before_leading(client: Client) -> None:
    await create(client, "a")
    answering = Answering(client)
    told: list[str] = []

    async def begin() -> None:
        assert answering.things.get("default", "a") is not None
        told.append("start")

    answering.manager.at_start(begin)
    answering.manager.at_lead(lambda: told.append("lead"))
    stop = asyncio.Event()
    running = asyncio.ensure_future(answering.manager.run(stop))
    await until(lambda: len(told) == 2)
    stop.set()
    await running
    assert told == ["start", "lead"]


async def test_stopping_an_unfinished_start_leaves_no_tasks(client: Client) -> None:
    before = everything()
    manager = Manager(client)
    manager.caches.of(Kind("example.com/v1", "Widget", "widgets", Object))
    manager.at_lead(lambda: pytest.fail("it leads without having seen anything"))
    stop = asyncio.Event()
    running = asyncio.ensure_future(manager.run(stop))
    await until(lambda: manager.caches.errors)
    [(missing, why)] = manager.caches.missing.items()
    assert (missing.plural, "could not find the requested resource" in why) == ("widgets", True)
    stop.set()
    await running
    await until(lambda: everything() <= before)  # the engine starts tasks of its own meanwhile, which end


async def test_start_error_is_raised_to_caller_and_leaves_no_tasks(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    before = everything()
    manager = Answering(client).manager

    async def refuse() -> None:
        raise OSError("address in use")

    manager.at_start(refuse)
    with pytest.raises(OSError, match="address in use"):
        await manager.run(asyncio.Event())
    await until(lambda: everything() <= before)  # the engine starts tasks of its own meanwhile, which end
    assert caplog.records == []


class Replica:
    def __init__(self, server: ApiServer, name: str, slow: float = 0.0) -> None:
        self.answering = Answering(server.client(), name)
        self.answering.slow = slow
        self.stop = asyncio.Event()
        self.election = Election(server.client(), LEASE_KEY, identity=name)
        self.running = asyncio.ensure_future(self.answering.manager.run(self.stop, self.election))

    @property
    def status(self) -> float | None:
        registry = self.answering.manager.metrics.registry
        return registry.get_sample_value("leader_election_master_status", {"name": self.answering.manager.name})


async def sleep_until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.1)


@virtually
async def test_second_replica_takes_over_when_leader_stops(server: ApiServer) -> None:
    client = server.client()
    one, other = Replica(server, "one"), Replica(server, "other")
    await create(client, "a", {"question": "who?"})
    await sleep_until(lambda: one.answering.seen)
    assert (one.status, other.status, other.answering.seen) == (1, None, [])
    one.stop.set()
    await one.running
    resigned = asyncio.get_running_loop().time()
    await create(client, "b", {"question": "and now?"})
    await sleep_until(lambda: "b" in other.answering.seen)
    assert asyncio.get_running_loop().time() - resigned < 3, "a lease given back is taken at the next attempt"
    assert "b" not in one.answering.seen
    assert (one.status, other.status) == (0, 1)
    other.stop.set()
    await other.running


@virtually
async def test_manager_that_loses_leadership_stops_immediately(server: ApiServer) -> None:
    client = server.client()
    before = everything()
    replica = Replica(server, "one", slow=50.0)
    await create(client, "a", {"question": "who?"})
    await asyncio.sleep(5)
    assert not replica.answering.manager.idle
    await client.patch(LEASE.target, *LEASE_KEY, {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 600}})
    taken = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLost, match="held by other"):
        await replica.running
    assert asyncio.get_running_loop().time() - taken < 3
    assert await answer(client, "a") is None
    assert everything() - before == set()
    assert LEASE.decode(await client.get(LEASE.target, *LEASE_KEY)).spec.holder_identity == "other"


@virtually
async def test_manager_suspended_past_its_lease_writes_nothing(server: ApiServer) -> None:
    client = server.client()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    replica = Replica(server, "one", slow=1.0)
    await create(client, "a", {"question": "who?"})
    await asyncio.sleep(0.9)
    assert (replica.status, replica.answering.seen) == (1, []), "it is about to answer"
    loop.leap(20)
    with pytest.raises(LeadershipLost):
        await replica.running
    assert replica.answering.seen == ["a"], "it was on its way before it noticed anything"
    assert await answer(client, "a") is None


@virtually
async def test_lease_is_held_until_last_reconcile_has_finished(server: ApiServer) -> None:
    client = server.client()
    replica = Replica(server, "one", slow=8.0)
    await create(client, "a", {"question": "who?"})
    await asyncio.sleep(4)
    replica.stop.set()
    await asyncio.sleep(3)
    assert LEASE.decode(await client.get(LEASE.target, *LEASE_KEY)).spec.holder_identity == "one"
    await replica.running
    assert await answer(client, "a") == "WHO?"
    assert LEASE.decode(await client.get(LEASE.target, *LEASE_KEY)).spec.holder_identity == ""


@virtually
async def test_standby_replica_stops_on_request(server: ApiServer) -> None:
    one = Replica(server, "one")
    await asyncio.sleep(5)
    other = Replica(server, "other")
    await asyncio.sleep(20)
    other.stop.set()
    await other.running
    assert one.status == 1
    one.stop.set()
    await one.running


async def test_namespaced_manager_caches_only_its_namespace(client: Client) -> None:
    await client.create(CONFIG_MAP.target, "kube-system", {"metadata": {"name": "elsewhere"}})
    manager = Manager(client, namespace="default")
    things = manager.caches.of(CONFIG_MAP)
    await manager.start()
    await manager.client.create(CONFIG_MAP.target, "default", {"metadata": {"name": "here"}})
    await manager.client.create(CONFIG_MAP.target, "kube-system", {"metadata": {"name": "there"}})
    assert {thing.metadata.namespace for thing in things.all()} == {"default"}
    assert things.get("default", "here") is not None
    await manager.stop()


async def test_rejected_write_is_neither_cached_nor_counted(client: Client) -> None:
    manager = Manager(client)
    things = manager.caches.of(CONFIG_MAP)
    await manager.start()
    with pytest.raises(StatusError):
        await manager.client.create(CONFIG_MAP.target, "default", {"metadata": {"name": "NOT A NAME"}})
    assert things.get("default", "NOT A NAME") is None
    assert manager.ledger.writes == 0
    assert (await manager.client.raw_get("/version")).startswith(b"{")
    await manager.stop()
