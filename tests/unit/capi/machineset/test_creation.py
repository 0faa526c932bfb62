from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.contract import ContractError, ProviderObject
from remuda.capi.machineset import creation
from remuda.capi.machineset.scope import MachineSetScope
from remuda.capi.templates import Templates
from remuda.capi.types import MACHINE_SET, Bootstrap, Machine, MachineInitialization, MachineStatus, Reference
from remuda.kube.client import Target
from remuda.runtime.draft import Draft
from tests.unit.capi.machineset.objects import machine

Json = dict[str, Any]


def template(kind: str) -> ProviderObject:
    obj = {"kind": kind, "metadata": {"name": "t", "namespace": "ns"}, "spec": {"template": {"spec": {}}}}
    return ProviderObject(msgspec.json.encode(obj), Target("infra.io/v1", "things"), "v1beta2")


def scope(**spec: Any) -> MachineSetScope:
    obj = {
        "metadata": {"name": "ms", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "clusterName": "c",
            "template": {
                "metadata": {"labels": {"pool": "a"}, "annotations": {"note": "x"}},
                "spec": {"clusterName": "c", "bootstrap": {"configRef": {"name": "t"}}, "future": [1], **spec},
            },
        },
    }
    value = msgspec.json.encode(obj)
    machine_set = MACHINE_SET.decode(value)
    draft = Draft(MACHINE_SET.target, value)
    return MachineSetScope(draft=draft, machine_set=machine_set, cluster=None, deployment=None, machines=[])


class TestMachine:
    def test_created_machine_references_objects_of_its_own_name(self) -> None:
        made = creation.machine(scope(), Templates(template("ITemplate"), template("BTemplate")), "ms-1")
        assert made["spec"]["infrastructureRef"] == {"apiGroup": "infra.io", "kind": "I", "name": "ms-1"}
        assert made["spec"]["bootstrap"] == {"configRef": {"apiGroup": "infra.io", "kind": "B", "name": "ms-1"}}

    def test_created_machine_copies_template_with_unknown_fields(self) -> None:
        made = creation.machine(scope(), Templates(template("ITemplate"), None), "ms-1")
        assert made["spec"]["future"] == [1]
        meta = made["metadata"]
        assert meta["labels"] == {"pool": "a", names.CLUSTER_NAME: "c", names.SET_NAME: "ms"}
        assert meta["annotations"] == {"note": "x"}
        assert meta["finalizers"] == [names.MACHINE_FINALIZER]
        assert meta["ownerReferences"][0]["controller"] is True

    def test_creating_machine_does_not_modify_template(self) -> None:
        of = scope()
        before = msgspec.json.encode(of.template)
        creation.machine(of, Templates(template("ITemplate"), template("BTemplate")), "ms-1")
        assert msgspec.json.encode(of.template) == before

    def test_created_machine_keeps_data_secret_name(self) -> None:
        of = scope(bootstrap={"dataSecretName": "s"})
        assert creation.machine(of, Templates(template("ITemplate"), None), "m")["spec"]["bootstrap"] == {
            "dataSecretName": "s"
        }

    def test_non_template_kind_is_rejected(self) -> None:
        with pytest.raises(ContractError, match="not the kind of a template"):
            creation.machine(scope(), Templates(template("I"), None), "m")


def half_made(name: str = "m", ref: str = "m", secret: str | None = None, **facts: Any) -> Machine:
    return machine(
        name,
        infrastructure_ref=Reference(api_group="i", kind="I", name=ref),
        bootstrap=Bootstrap(config_ref=Reference(api_group="b", kind="B", name=ref), data_secret_name=secret),
        **facts,
    )


def provisioned(one: Machine) -> Machine:
    status = MachineStatus(initialization=MachineInitialization(infrastructure_provisioned=True))
    return msgspec.structs.replace(one, status=status)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (half_made(), True),
        (half_made(provider_id="x://1"), True),  # its bootstrap data is not known yet
        (half_made(secret="s"), True),  # its server is not known yet
        (half_made(secret="s", provider_id="x://1"), False),
        (provisioned(half_made(secret="s")), False),
        (half_made(deleted="2026-01-01T00:00:00Z"), False),
        (half_made(ref="somebody-elses"), False),
    ],
)
def test_machine_is_incomplete_until_bootstrapped_and_provisioned(one: Machine, expected: bool) -> None:
    assert creation.is_incomplete(one) is expected


async def test_batch_completes_all_actions_before_raising() -> None:
    ended = []

    async def act(name: str) -> str:
        ended.append(name)
        if name == "bad":
            raise ValueError(name)
        return name

    assert await creation.together([act("a"), act("b")]) == ["a", "b"]
    with pytest.raises(ValueError, match="bad"):
        await creation.together([act("bad"), act("c")])
    assert ended == ["a", "b", "bad", "c"]
