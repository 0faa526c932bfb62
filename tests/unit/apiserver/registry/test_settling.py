"""Answers rest on what is on disk: refusals, and answers to writes that change nothing, wait for what they rest on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from remuda.apiserver.storage.types import StorageFailed
from remuda.apiserver.storage.writer import Write
from remuda.kube.errors import StatusError
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.apiserver.engine import CONFIGMAPS, Engine

BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}


class Gate:
    """Holds back writes on their way to disk, as a slow disk does."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._engine = engine
        self._submit = engine.store._writer.submit
        self._held: list[Write] = []
        monkeypatch.setattr(engine.store._writer, "submit", self._hold)

    def _hold(self, writes: Sequence[Write]) -> None:
        self._held += writes

    async def wait(self) -> None:
        """Return when a write has arrived here, and whoever could answer has had time to."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not self._held:
                await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)

    def open(self) -> None:
        held, self._held = self._held, []
        self._submit(held)

    def fail(self) -> None:
        self._held = []
        self._engine.store._failed(StorageFailed("disk full"))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    yield engine
    await engine.close()


async def create(engine: Engine) -> bytes:
    return await engine.client.create(CONFIGMAPS, "default", BODY)


async def update(engine: Engine) -> bytes:
    body = {**BODY, "metadata": {"name": "a", "resourceVersion": str(engine.store.revision)}, "data": {"x": "2"}}
    return await engine.client.update(CONFIGMAPS, "default", "a", body)


async def patch(engine: Engine) -> bytes:
    return await engine.client.patch(CONFIGMAPS, "default", "a", {"data": {"x": "2"}})


async def delete(engine: Engine) -> bytes:
    return await engine.client.delete(CONFIGMAPS, "default", "a")


Act = Callable[[Engine], Awaitable[bytes]]
REFUSED: list[tuple[bool, Act, Act, int]] = [
    (False, create, create, 409),
    (True, update, update, 409),
    (True, patch, update, 409),
    (True, delete, patch, 404),
    (True, delete, update, 404),
    (True, delete, delete, 404),
]


@pytest.mark.parametrize(("exists", "first", "second", "code"), REFUSED)
async def test_rejection_waits_until_its_cause_is_durable(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, exists: bool, first: Act, second: Act, code: int
) -> None:
    if exists:
        await create(engine)
    revision = engine.store.revision
    gate = Gate(engine, monkeypatch)
    writing, refused = asyncio.ensure_future(first(engine)), asyncio.ensure_future(second(engine))
    await gate.wait()
    assert not refused.done(), "readers do not see yet why it is refused"
    gate.open()
    with pytest.raises(StatusError) as caught:
        await refused
    assert caught.value.code == code
    assert engine.store.revision == revision + 1
    await writing


@pytest.mark.parametrize(("exists", "first", "second", "code"), REFUSED)
async def test_rejection_becomes_500_when_its_cause_fails_to_be_stored(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, exists: bool, first: Act, second: Act, code: int
) -> None:
    if exists:
        await create(engine)
    gate = Gate(engine, monkeypatch)
    acts = asyncio.ensure_future(first(engine)), asyncio.ensure_future(second(engine))
    await gate.wait()
    gate.fail()
    for act in acts:
        with pytest.raises(StatusError) as caught:
            await act
        assert caught.value.code == 500


async def test_no_op_write_waits_until_its_object_is_durable(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash would undo what it acknowledged."""
    await create(engine)
    gate = Gate(engine, monkeypatch)
    writing, unchanged = asyncio.ensure_future(patch(engine)), asyncio.ensure_future(patch(engine))
    await gate.wait()
    assert not unchanged.done()
    gate.open()
    assert await unchanged == await writing


async def test_repeated_delete_waits_until_first_delete_is_durable(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {**BODY, "metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
    await engine.client.create(CONFIGMAPS, "default", held)
    gate = Gate(engine, monkeypatch)
    deleting, again = asyncio.ensure_future(delete(engine)), asyncio.ensure_future(delete(engine))
    await gate.wait()
    assert not again.done()
    gate.open()
    assert await again == await deleting


async def test_no_op_write_does_not_wait_for_other_objects(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(engine)
    await patch(engine)
    gate = Gate(engine, monkeypatch)
    other = {**BODY, "metadata": {"name": "b"}}
    writing = asyncio.ensure_future(engine.client.create(CONFIGMAPS, "default", other))
    await gate.wait()
    await patch(engine)
    assert not writing.done()
    gate.open()
    await writing
