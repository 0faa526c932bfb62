"""What all sides of the provider share."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from remuda.capi.contract import ProviderObject
from remuda.kube import clock, conditions
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.kinds import FAMILIES, NEW, OLD, Family
from remuda.lab.simulator.providers import common
from remuda.lab.simulator.types import Script

EITHER = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.contract)


def machine(family: Family) -> ProviderObject:
    metadata = {"name": "m", "uid": "u", "resourceVersion": "1"}
    obj = {"apiVersion": family.machine.api_version, "kind": "SimulatedMachine", "metadata": metadata}
    return ProviderObject(msgspec.json.encode(obj), family.machine.target, family.contract)


def test_scripted_failures_occur_before_success() -> None:
    attempts, script = common.ScriptProgress(), Script(failures=2)
    assert [attempts.fails("u", script) for _ in range(4)] == [True, True, False, True]
    assert not attempts.fails("other", Script())


def test_scripted_work_duration_counts_from_its_start() -> None:
    async def main() -> list[float]:
        began, script = clock.now(), Script(seconds=30)
        attempts = common.ScriptProgress()
        left = [attempts.seconds_left(script, began)]
        await asyncio.sleep(20)
        left.append(attempts.seconds_left(script, began))
        await asyncio.sleep(20)
        return [*left, attempts.seconds_left(script, began), attempts.seconds_left(script, None)]

    assert virtual.run(main()) == [30.0, 10.0, 0.0, 0.0]


def test_put_sets_nested_value_and_keeps_other_fields() -> None:
    obj: common.Json = {"status": {"kept": 1}}
    common.put(obj, ("status", "initialization", "provisioned"), True)
    common.put(obj, ("status", "ready"), False)
    assert obj == {"status": {"kept": 1, "initialization": {"provisioned": True}, "ready": False}}


@EITHER
def test_report_sets_paused_condition_to_false_by_default(family: Family) -> None:
    obj = machine(family)
    for news, expected in (((), "False"), ((conditions.condition("Paused", True, "Paused", "why"),), "True")):
        draft = obj.draft()
        common.report(draft, obj, conditions.condition("Ready", True, "Well"), *news)
        found = {one["type"]: one["status"] for one in draft.status["conditions"]}
        assert found == {"Ready": "True", "Paused": expected}


def test_empty_condition_messages_follow_contract_version() -> None:
    for family, expected in ((NEW, True), (OLD, False)):
        obj = machine(family)
        draft = obj.draft()
        common.report(draft, obj, conditions.condition("Ready", True, "Well"))
        assert all(("message" in one) is expected for one in draft.status["conditions"])


@EITHER
def test_owner_reference_names_object_as_controller(family: Family) -> None:
    owner = common.owner_reference(machine(family))
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == (
        family.machine.api_version,
        "SimulatedMachine",
        "m",
        "u",
    )
    assert owner.controller
