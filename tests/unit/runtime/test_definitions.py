from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.client import Target
from remuda.kube.errors import StatusError, already_exists, conflict
from remuda.runtime.definitions import INSTALL, ForeignDefinitions, NotEstablished, install, revised
from tests.unit.apiserver.engine import CRDS, Engine, definition, loads

Json = dict[str, Any]

OURS = {"app.kubernetes.io/managed-by": "remuda"}


def ours(plural: str, **names: Any) -> Json:
    found = definition(plural, **names)
    found["metadata"]["labels"] = dict(OURS)
    found["spec"]["conversion"] = {"strategy": "None"}
    return found


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data")
    yield engine
    await engine.close()


async def resource_version(engine: Engine, name: str) -> str:
    await engine.settled()
    found = engine.find(CRDS, "", name)
    assert found is not None
    return str(found["metadata"]["resourceVersion"])


async def test_missing_definitions_are_created_and_served(engine: Engine) -> None:
    await install(engine.client, [ours("widgets"), ours("gadgets")])
    for plural in ("widgets", "gadgets"):
        created = await engine.create(Target("test.io/v1", plural), "default", {"metadata": {"name": "x"}})
        assert created["kind"] == plural.removesuffix("s").capitalize()


async def test_reinstalling_definitions_writes_nothing(engine: Engine) -> None:
    await install(engine.client, [ours("widgets")])
    before, taken = await resource_version(engine, "widgets.test.io"), INSTALL.taken
    await install(engine.client, [ours("widgets")])
    assert (await resource_version(engine, "widgets.test.io"), INSTALL.taken) == (before, taken)


async def test_changed_definition_is_updated_and_foreign_metadata_stays(engine: Engine) -> None:
    await install(engine.client, [ours("widgets")])
    await engine.patch(CRDS, "", "widgets.test.io", {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}})
    changed = ours("widgets", shortNames=["wd"])
    await install(engine.client, [changed])
    found = engine.find(CRDS, "", "widgets.test.io") or {}
    assert found["spec"]["names"]["shortNames"] == ["wd"]
    assert found["metadata"]["labels"] == {**OURS, "team": "a"}
    assert found["metadata"]["annotations"] == {"b": "c"}


async def test_removed_schema_property_is_deleted_from_definition(engine: Engine) -> None:
    wanted = ours("widgets")
    fuller = deepcopy(wanted)
    fuller["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["extra"] = {"type": "string"}
    await install(engine.client, [fuller])
    await install(engine.client, [wanted])
    found = engine.find(CRDS, "", "widgets.test.io") or {}
    assert found["spec"] == wanted["spec"]


async def test_foreign_definition_prevents_all_writes(engine: Engine) -> None:
    await engine.define(definition("gadgets"))
    with pytest.raises(ForeignDefinitions, match=r"gadgets\.test\.io: already installed by another program") as refused:
        await install(engine.client, [ours("widgets"), ours("gadgets")])
    assert refused.value.names == ("gadgets.test.io",)
    assert engine.find(CRDS, "", "widgets.test.io") is None


async def test_name_conflict_raises_not_established(engine: Engine) -> None:
    await engine.define(definition("gadgets", shortNames=["wd"]))
    with pytest.raises(NotEstablished, match=r"widgets\.test\.io is not served: .*wd"):
        await install(engine.client, [ours("widgets", shortNames=["wd"])])


async def test_unserved_definition_times_out(tmp_path: Path) -> None:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    try:
        with pytest.raises(NotEstablished, match=r"widgets\.test\.io is not served: the server has not reported"):
            await install(engine.client, [ours("widgets")], timeout_seconds=0.05)
    finally:
        await engine.close()


async def test_install_returns_when_definition_is_served(tmp_path: Path) -> None:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    try:
        installing = asyncio.create_task(install(engine.client, [ours("widgets")]))
        await engine.eventually(lambda: engine.find(CRDS, "", "widgets.test.io"))
        assert not installing.done()
        await engine.upkeep.start()
        await installing
    finally:
        await engine.close()


async def test_deleting_definition_raises_not_established(engine: Engine) -> None:
    held = ours("widgets")
    held["metadata"]["finalizers"] = ["test.io/hold"]
    await engine.create(CRDS, "", held)
    await engine.delete(CRDS, "", "widgets.test.io")
    with pytest.raises(NotEstablished, match="it is being deleted"):
        await install(engine.client, [ours("widgets")])


class Racing:
    """The engine's client, but somebody writes first, once."""

    def __init__(self, engine: Engine, rival: Json) -> None:
        self._engine = engine
        self._rival: Json | None = rival

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine.client, name)

    async def create(self, target: Target, namespace: str, obj: Json, **more: Any) -> bytes:
        if self._rival is not None:
            rival, self._rival = self._rival, None
            await self._engine.create(CRDS, "", rival)
        return await self._engine.client.create(target, namespace, obj, **more)

    async def update(self, target: Target, namespace: str, name: str, obj: Json, **more: Any) -> bytes:
        if self._rival is not None:
            self._rival = None
            raise conflict(target.group, target.plural, name)
        return await self._engine.client.update(target, namespace, name, obj, **more)


async def test_concurrent_install_updates_definition_created_meanwhile(engine: Engine) -> None:
    await install(Racing(engine, ours("widgets")), [ours("widgets", shortNames=["wd"])])
    found = engine.find(CRDS, "", "widgets.test.io") or {}
    assert found["spec"]["names"]["shortNames"] == ["wd"]


async def test_conflicting_definition_update_is_retried(engine: Engine) -> None:
    await install(engine.client, [ours("widgets")])
    await install(Racing(engine, {}), [ours("widgets", shortNames=["wd"])])
    found = engine.find(CRDS, "", "widgets.test.io") or {}
    assert found["spec"]["names"]["shortNames"] == ["wd"]


async def test_foreign_definition_created_meanwhile_is_not_overwritten(engine: Engine) -> None:
    with pytest.raises(ForeignDefinitions):
        await install(Racing(engine, definition("widgets")), [ours("widgets", shortNames=["wd"])])
    assert "shortNames" not in (engine.find(CRDS, "", "widgets.test.io") or {})["spec"]["names"]


async def test_rejected_definition_raises_the_server_error(engine: Engine) -> None:
    wrong = ours("widgets")
    wrong["spec"]["scope"] = "Elsewhere"
    with pytest.raises(StatusError, match="Elsewhere"):
        await install(engine.client, [wrong])


async def test_revised_definition_keeps_resource_version(engine: Engine) -> None:
    created = loads(await engine.client.create(CRDS, "", ours("widgets")))
    assert revised(created, ours("widgets")) is None
    revision = revised(created, ours("widgets", shortNames=["wd"]))
    assert revision is not None
    assert revision["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


class LateWinner(Racing):
    """Somebody has written first, and what they wrote comes to light only when others get to run."""

    def __init__(self, engine: Engine, rival: Json) -> None:
        super().__init__(engine, rival)
        self.reads: list[float] = []

    async def get(self, *args: Any, **more: Any) -> bytes:
        self.reads.append(asyncio.get_running_loop().time())
        return await self._engine.client.get(*args, **more)

    async def create(self, target: Target, namespace: str, obj: Json, **more: Any) -> bytes:
        if self._rival is not None:
            rival, self._rival = self._rival, None
            asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(self.write(rival)))
        raise already_exists(target.group, target.plural, obj["metadata"]["name"])

    async def write(self, rival: Json) -> None:
        await self._engine.create(CRDS, "", rival)


async def test_lost_install_race_backs_off_exponentially(engine: Engine) -> None:
    racing = LateWinner(engine, ours("widgets"))
    await install(racing, [ours("widgets")])
    assert engine.find(CRDS, "", "widgets.test.io") is not None
    # The first read comes before the race. How many follow depends on how long the winner takes.
    waits = [after - before for before, after in itertools.pairwise(racing.reads)]
    assert len(waits) >= 2
    assert all(wait >= 0.8 * min(0.01 * 2**number, 1.0) for number, wait in enumerate(waits)), (
        "each loser waits longer before it looks again"
    )
