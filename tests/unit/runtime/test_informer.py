"""The informer against a model server, with answers and watch events arriving in any order they could."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remuda.kube.client import Change, ChangeType, Client
from remuda.kube.objects import Key, Kind, Object
from remuda.kube.selectors import parse_label_selector
from remuda.runtime.caches import Caches
from remuda.runtime.informer import Informer
from tests.unit.runtime.things import CONFIG_MAP, ConfigMap

NAMES = st.sampled_from("abc")
COLOURS = st.sampled_from(("red", "blue"))


def by_colour(thing: ConfigMap) -> tuple[str, ...]:
    return (thing.data["colour"],)


class ModelServer:
    """One resource with a history, as a real server has it: each write has the next revision."""

    def __init__(self) -> None:
        self.revision = 0
        self.uids = 0
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, Change]] = []

    def _commit(self, type: ChangeType, obj: dict[str, Any]) -> bytes:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        value = msgspec.json.encode(obj)
        self.history.append((self.revision, Change(type, value)))
        return value

    def write(self, name: str, colour: str, *, finalizer: bool = False) -> bytes:
        obj = self.objects.get(name)
        if obj is not None:
            obj["data"] = {"colour": colour}
            return self._commit("MODIFIED", obj)
        self.uids += 1
        metadata = {"namespace": "default", "name": name, "uid": f"u{self.uids}"}
        if finalizer:
            metadata["finalizers"] = ["keep"]  # type: ignore[assignment]
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": colour}}
        self.objects[name] = obj
        return self._commit("ADDED", obj)

    def delete(self, name: str) -> bytes:
        obj = self.objects[name]
        if obj["metadata"].get("finalizers"):
            obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return self._commit("MODIFIED", obj)
        self._end(name)
        uid = obj["metadata"]["uid"]
        return msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "details": {"uid": uid}})

    def release(self, name: str) -> bytes:
        """Takes the finalizer away. The answer to a write that ends an object is the object at its last revision."""
        obj = self.objects[name]
        obj["metadata"].pop("finalizers")
        if obj["metadata"].get("deletionTimestamp"):
            answer = msgspec.json.encode(obj)
            self._end(name)
            return answer
        return self._commit("MODIFIED", obj)

    def _end(self, name: str) -> None:
        self._commit("DELETED", self.objects.pop(name))

    def snapshot(self) -> list[bytes]:
        return [msgspec.json.encode(obj) for obj in self.objects.values()]


def revision_of(value: bytes) -> int:
    return int(CONFIG_MAP.decode(value).metadata.resource_version)


class InformerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = ModelServer()
        self.caches = Caches(client=None)  # type: ignore[arg-type]
        self.informer = self.caches.of(CONFIG_MAP)
        self.informer.index("colour", by_colour)
        self.informer.listen(self.record_change)
        self.heard: dict[str, ConfigMap] = {}
        self.watched = 0  # how far the watch has come
        self.answers: list[tuple[str, bool, bytes]] = []  # to our own writes, still on their way
        self.shown: dict[str, int] = {}
        self.written: dict[str, tuple[str, int]] = {}  # the uid and revision our last answered write of a name had
        self.ended: set[str] = set()  # uids that were told to be gone

    def record_change(self, before: ConfigMap | None, after: ConfigMap | None, initial: bool) -> None:
        known = before or after
        assert known is not None
        name = known.metadata.name
        assert self.heard.get(name) == before, "listeners are told of every change, in order"
        if after is None:
            del self.heard[name]
        else:
            self.heard[name] = after

    # others

    @rule(name=NAMES, colour=COLOURS, finalizer=st.booleans())
    def others_write(self, name: str, colour: str, finalizer: bool) -> None:
        self.server.write(name, colour, finalizer=finalizer)

    @precondition(lambda self: self.server.objects)
    @rule(data=st.data())
    def others_delete(self, data: st.DataObject) -> None:
        self.server.delete(data.draw(st.sampled_from(sorted(self.server.objects))))

    @precondition(lambda self: any(obj["metadata"].get("finalizers") for obj in self.server.objects.values()))
    @rule(data=st.data(), ours=st.booleans(), late=st.booleans())
    def release(self, data: st.DataObject, ours: bool, late: bool) -> None:
        held = [name for name, obj in self.server.objects.items() if obj["metadata"].get("finalizers")]
        name = data.draw(st.sampled_from(sorted(held)))
        answer = self.server.release(name)
        if ours:
            self.answered(name, False, answer, late)

    # ourselves

    @rule(name=NAMES, colour=COLOURS, finalizer=st.booleans(), late=st.booleans())
    def write(self, name: str, colour: str, finalizer: bool, late: bool) -> None:
        self.answered(name, False, self.server.write(name, colour, finalizer=finalizer), late)

    @precondition(lambda self: self.server.objects)
    @rule(data=st.data(), late=st.booleans())
    def delete(self, data: st.DataObject, late: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.server.objects)))
        self.answered(name, True, self.server.delete(name), late)

    def answered(self, name: str, deleted: bool, answer: bytes, late: bool) -> None:
        self.answers.append((name, deleted, answer))
        if not late:
            self.hear(len(self.answers) - 1)

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def late_answer(self, data: st.DataObject) -> None:
        self.hear(data.draw(st.integers(0, len(self.answers) - 1)))

    def hear(self, place: int) -> None:
        name, deleted, answer = self.answers.pop(place)
        if deleted:
            shown = self.informer.get("default", name)
            self.caches.deleted(CONFIG_MAP.target, Key("default", name), answer)
            status = msgspec.json.decode(answer)
            if status["kind"] == "Status":
                if shown is not None and shown.metadata.uid == status["details"]["uid"]:
                    self.ended.add(shown.metadata.uid)
                return
        else:
            self.caches.observe(CONFIG_MAP.target, answer)
        obj = CONFIG_MAP.decode(answer)
        if obj.metadata.deleting and not obj.metadata.finalizers:
            return
        self.written[name] = (obj.metadata.uid, int(obj.metadata.resource_version))

    # the watch

    @rule(count=st.integers(1, 4))
    def watch(self, count: int) -> None:
        for revision, change in self.server.history[self.watched : self.watched + count]:
            assert self.informer.change(change) == revision
            if change.type == "DELETED":
                self.ended.add(CONFIG_MAP.decode(change.value).metadata.uid)
            self.watched = revision

    @rule(meanwhile=st.lists(st.tuples(NAMES, COLOURS, st.booleans()), max_size=2))
    def relist(self, meanwhile: list[tuple[str, str, bool]]) -> None:
        items, revision = self.server.snapshot(), self.server.revision
        for name, colour, ours in meanwhile:
            answer = self.server.write(name, colour)
            if ours:
                self.answered(name, False, answer, late=False)
        self.informer.replace(items, revision)
        self.watched = revision

    @invariant()
    def never_goes_back(self) -> None:
        for name in "abc":
            shown = self.informer.get("default", name)
            if shown is not None:
                revision = int(shown.metadata.resource_version)
                assert revision >= self.shown.get(name, 0)
                self.shown[name] = revision
                assert shown.metadata.uid not in self.ended, "a deleted object is shown again"

    @invariant()
    def shows_what_we_wrote(self) -> None:
        for name, (uid, revision) in self.written.items():
            shown = self.informer.get("default", name)
            if shown is None:
                actual = self.server.objects.get(name)
                assert actual is None or actual["metadata"]["uid"] != uid, "a write of ours is not shown"
            else:
                assert int(shown.metadata.resource_version) >= revision

    @invariant()
    def is_indexed(self) -> None:
        everything = self.informer.all()
        assert {thing.metadata.name: thing for thing in everything} == self.heard
        for colour in ("red", "blue"):
            assert self.informer.select("colour", colour) == [
                thing for thing in everything if by_colour(thing) == (colour,)
            ]

    def teardown(self) -> None:
        while self.answers:
            self.hear(0)
        self.watch(len(self.server.history))
        actual = {name: CONFIG_MAP.decode(msgspec.json.encode(obj)) for name, obj in self.server.objects.items()}
        assert {thing.metadata.name: thing for thing in self.informer.all()} == actual
        assert self.informer._graves == {}, "nothing is remembered of what is gone"


TestInformerModel = InformerModel.TestCase


def thing(name: str, revision: int, *, namespace: str = "default", **labels: str) -> bytes:
    metadata = {"namespace": namespace, "name": name, "uid": f"u-{name}", "resourceVersion": str(revision)}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**metadata, "labels": labels}})


def informer(**options: Any) -> Informer[Object]:
    return Informer(msgspec.json.Decoder(Object).decode, CONFIG_MAP.target, **options)


def names(found: Informer[Object]) -> list[str]:
    return [obj.metadata.name for obj in found.all()]


async def test_lagging_watch_does_not_show_earlier_incarnation_of_deleted_object() -> None:
    def incarnation(uid: str, revision: int) -> bytes:
        metadata = {"namespace": "default", "name": "a", "uid": uid, "resourceVersion": str(revision)}
        return msgspec.json.encode({"kind": "ConfigMap", "metadata": metadata})

    lagging = informer()
    lagging.observe(incarnation("second", 3))
    lagging.bury(Key("default", "a"), "second")
    for change in (Change("ADDED", incarnation("first", 1)), Change("DELETED", incarnation("first", 2))):
        lagging.change(change)
        assert names(lagging) == []
    lagging.change(Change("ADDED", incarnation("second", 3)))
    assert names(lagging) == []
    lagging.change(Change("DELETED", incarnation("second", 4)))
    lagging.change(Change("ADDED", incarnation("third", 5)))
    assert names(lagging) == ["a"]


async def test_filtered_informer_ignores_objects_outside_its_selector() -> None:
    part = informer(namespace="ours", selector=parse_label_selector("colour=red"))
    part.observe(thing("elsewhere", 1, namespace="theirs", colour="red"))
    part.observe(thing("blue", 2, namespace="ours", colour="blue"))
    part.observe(thing("red", 3, namespace="ours", colour="red"))
    assert names(part) == ["red"]


async def test_failing_listener_does_not_block_other_listeners() -> None:
    heard: list[tuple[bool, bool, bool]] = []
    told = informer()

    def fails(before: Object | None, after: Object | None, initial: bool) -> None:
        raise ZeroDivisionError

    told.listen(fails)
    told.listen(lambda before, after, initial: heard.append((before is not None, after is not None, initial)))
    told.replace([thing("a", 1)], 1)
    told.change(Change("MODIFIED", thing("a", 2)))
    told.change(Change("DELETED", thing("a", 3)))
    assert heard == [(False, True, True), (True, True, False), (True, False, False)]


async def test_removed_listener_receives_no_changes() -> None:
    told = informer()
    heard: list[object] = []

    def hear(before: Object | None, after: Object | None, initial: bool) -> None:
        heard.append(after)

    told.listen(hear)
    told.replace([thing("a", 1)], 1)
    told.unlisten(hear)
    told.change(Change("DELETED", thing("a", 2)))
    assert len(heard) == 1


async def test_late_listener_receives_existing_objects() -> None:
    filled = informer()
    filled.replace([thing("a", 1), thing("b", 2)], 2)
    heard: list[str] = []
    filled.listen(lambda before, after, initial: heard.append(f"{after.metadata.name} {initial}" if after else ""))
    assert heard == ["a True", "b True"]


async def test_index_declared_after_sync_is_rejected() -> None:
    filled = informer()
    filled.replace([thing("a", 1)], 1)
    with pytest.raises(RuntimeError, match="must be declared before"):
        filled.index("late", lambda obj: ())


async def test_index_with_duplicate_values_releases_object() -> None:
    filled = informer()
    filled.index("twice", lambda obj: ("x", "x"))
    filled.replace([thing("a", 1)], 1)
    assert filled.keys("twice", "x") == [Key("default", "a")]
    filled.replace([], 2)
    assert filled.keys("twice", "x") == []


async def test_informer_stores_transformed_objects() -> None:
    def bare(value: bytes) -> bytes:
        obj = msgspec.json.decode(value)
        del obj["metadata"]["labels"]
        return msgspec.json.encode(obj)

    lean = informer(transform=bare)
    lean.change(Change("ADDED", thing("a", 1, colour="red")))
    found = lean.get("default", "a")
    assert found is not None
    assert found.metadata.labels == {}
    assert b"labels" not in (lean.raw("default", "a") or b"")


async def test_deleting_namespace_without_finalizers_stays_in_cache() -> None:
    namespaces = Informer(msgspec.json.Decoder(Object).decode, CONFIG_MAP.target._replace(plural="namespaces"))
    ending: Mapping[str, Any] = {
        "name": "n",
        "uid": "u",
        "resourceVersion": "2",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    namespaces.observe(msgspec.json.encode({"kind": "Namespace", "metadata": ending}))
    assert names(namespaces) == ["n"]


async def test_bookmark_advances_revision_without_adding_objects() -> None:
    marked = informer()
    assert marked.change(Change("BOOKMARK", msgspec.json.encode({"metadata": {"resourceVersion": "9"}}))) == 9
    assert len(marked) == 0
    marked.observe(thing("past", 8))
    assert names(marked) == [], "the watch is past it: the object has been deleted since"


async def test_own_deletes_are_reflected_in_cache_immediately(client: Client) -> None:
    caches = Caches(client)
    things = caches.of(CONFIG_MAP)
    await caches.start()
    for name, finalizers in (("free", []), ("held", ["example.com/keep"])):
        value = await client.create(
            CONFIG_MAP.target, "default", {"metadata": {"name": name, "finalizers": finalizers}, "data": {}}
        )
        caches.observe(CONFIG_MAP.target, value)
        caches.deleted(CONFIG_MAP.target, Key("default", name), await client.delete(CONFIG_MAP.target, "default", name))
    assert things.get("default", "free") is None
    held = things.get("default", "held")
    assert held is not None
    assert held.metadata.deleting
    patch = {"metadata": {"finalizers": None}}
    caches.observe(CONFIG_MAP.target, await client.patch(CONFIG_MAP.target, "default", "held", patch))
    assert things.get("default", "held") is None
    await caches.close()


class Counted(Object):
    count: int = 0


def counted(name: str, revision: int, count: object) -> bytes:
    metadata = {"namespace": "default", "name": name, "uid": f"u-{name}", "resourceVersion": str(revision)}
    return msgspec.json.encode({"metadata": metadata, "count": count})


def counting() -> Informer[Counted]:
    return Informer(Kind("v1", "Counted", "counted", Counted).decode, CONFIG_MAP.target)


async def test_undecodable_object_does_not_hide_other_objects(caplog: pytest.LogCaptureFixture) -> None:
    found = counting()
    found.replace([counted("a", 1, 1), counted("bad", 2, "many"), counted("c", 3, 3)], 3)
    assert found.synced.is_set()
    assert [obj.metadata.name for obj in found.all()] == ["a", "c"]
    assert "Expected `int`, got `str`" in str(found.unreadable[Key("default", "bad")])
    found.change(Change("MODIFIED", counted("bad", 4, "more")))
    assert [record.message for record in caplog.records] == [
        "cannot decode configmaps default/bad, keeping its last readable version: "
        "Expected `int`, got `str` - at `$.count`"
    ]
    found.change(Change("MODIFIED", counted("bad", 5, 5)))
    assert found.unreadable == {}
    assert [obj.count for obj in found.all()] == [1, 5, 3]


async def test_object_that_becomes_undecodable_keeps_last_state() -> None:
    found = counting()
    heard: list[Counted | None] = []
    found.listen(lambda before, after, initial: heard.append(after))
    found.replace([counted("a", 1, 1)], 1)
    found.change(Change("MODIFIED", counted("a", 2, "many")))
    found.replace([counted("a", 2, "many")], 3)
    [shown] = found.all()
    assert (shown.count, len(heard)) == (1, 1)
    found.change(Change("DELETED", counted("a", 4, "many")))
    assert (found.all(), found.unreadable, heard[1:]) == ([], {}, [None])


async def test_deleted_undecodable_object_is_removed_from_unreadable() -> None:
    found = counting()
    found.replace([counted("a", 1, "many")], 1)
    found.replace([], 2)
    assert found.unreadable == {}


async def test_index_failure_on_one_object_does_not_hide_other_objects() -> None:
    found = counting()
    found.index("share", lambda obj: (str(12 // obj.count),))
    found.replace([counted("a", 1, 0), counted("b", 2, 4)], 2)
    assert [obj.metadata.name for obj in found.select("share", "3")] == ["b"]
    assert list(found.unreadable) == [Key("default", "a")]
