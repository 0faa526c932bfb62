"""Events go an hour after they were last written, and nothing else does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remuda.apiserver.storage.types import StorageFailed
from remuda.apiserver.upkeep import expiry
from remuda.apiserver.upkeep.expiry import ExpiryDuty
from tests.unit.apiserver.engine import CONFIGMAPS, EVENTS, Engine


async def make_event(engine: Engine, name: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "ns", "name": "p"}
    body = {"metadata": {"name": name}, "involvedObject": about, "reason": "Tested", "type": "Normal"}
    return await engine.create(EVENTS, "ns", body)


def later(**delta: int) -> datetime:
    return datetime.now(UTC) + timedelta(**delta)


async def test_events_are_deleted_after_their_ttl(idle_engine: Engine) -> None:
    duty = ExpiryDuty(idle_engine.registry, timedelta(hours=1))
    await make_event(idle_engine, "e")
    await idle_engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "c"}})
    await duty.sweep(later(minutes=59))
    assert idle_engine.names(EVENTS, "ns") == ["e"]
    await duty.sweep(later(minutes=61))
    assert idle_engine.names(EVENTS, "ns") == []
    assert idle_engine.names(CONFIGMAPS, "ns") == ["c"]


async def test_updated_event_has_its_ttl_extended(idle_engine: Engine) -> None:
    duty = ExpiryDuty(idle_engine.registry, timedelta(seconds=0))
    made = datetime.fromisoformat((await make_event(idle_engine, "e"))["metadata"]["creationTimestamp"])
    await idle_engine.eventually(lambda: datetime.now(UTC) >= made + timedelta(seconds=1))
    await idle_engine.patch(EVENTS, "ns", "e", {"count": 2})
    await duty.sweep(made + timedelta(seconds=1))
    assert idle_engine.names(EVENTS, "ns") == ["e"]
    await duty.sweep(later(seconds=2))
    assert idle_engine.names(EVENTS, "ns") == []


async def test_single_sweep_deletes_hundreds_of_events(idle_engine: Engine) -> None:
    await asyncio.gather(*(make_event(idle_engine, f"e{i}") for i in range(300)))
    await ExpiryDuty(idle_engine.registry, timedelta(hours=1)).sweep(later(hours=2))
    assert idle_engine.names(EVENTS, "ns") == []


async def test_event_expiry_continues_after_storage_failure(
    idle_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    duty = ExpiryDuty(idle_engine.registry, timedelta(hours=-1))
    sweep, failures = duty.sweep, [StorageFailed("the disk is full")]

    async def failing(now: datetime) -> None:
        if failures:
            raise failures.pop()
        await sweep(now)

    monkeypatch.setattr(expiry, "_SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(duty, "sweep", failing)
    await make_event(idle_engine, "e")
    await duty.start()
    await idle_engine.gone(EVENTS, "ns", "e")
    await duty.close()


async def test_event_expiry_can_be_closed_before_start(idle_engine: Engine) -> None:
    await ExpiryDuty(idle_engine.registry).close()
