"""The simulated provider's kinds, as a server and Cluster API see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import contract, external
from remuda.capi.contract import ProviderObject
from remuda.kube.objects import Kind
from remuda.lab.simulator.kinds import FAMILIES, NEW, OLD, Family, definitions
from remuda.runtime.definitions import install

BY_NAME: dict[str, Any] = {definition["metadata"]["name"]: definition for definition in definitions()}
ALL = [(family, kind) for family in FAMILIES for kind in family.kinds]


@pytest.mark.parametrize(("family", "kind"), ALL, ids=lambda value: getattr(value, "name", getattr(value, "group", "")))
def test_every_simulated_kind_resolves_to_its_contract_version(family: Family, kind: Kind[Any]) -> None:
    definition = BY_NAME[external.definition_name(family.group, kind.name)]
    resolved = external.resolve(family.group, kind.name, definition["metadata"]["labels"])
    assert resolved == (kind.target, family.contract)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.contract)
def test_template_kind_names_match_their_base_kinds(family: Family) -> None:
    for template, made in (
        (family.machine_template, family.machine),
        (family.bootstrap_template, family.bootstrap),
        (family.remediation_template, family.remediation),
    ):
        assert contract.base_kind(template.name) == made.name


def test_both_provider_families_define_the_same_kinds() -> None:
    assert [kind.name for kind in NEW.kinds] == [kind.name for kind in OLD.kinds]
    assert {kind.group for kind in NEW.kinds} != {kind.group for kind in OLD.kinds}


async def test_api_server_stores_provider_spec_and_status(tmp_path: Path) -> None:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, volatile=True))
    client = server.client()
    try:
        await install(client, definitions())
        for family in FAMILIES:
            target = family.machine.target
            obj = {"apiVersion": family.machine.api_version, "kind": family.machine.name}
            obj |= {"metadata": {"name": "m"}, "spec": {"script": {"bootSeconds": 1.5}, "providerID": "x:///1"}}
            await client.create(target, "default", obj)
            status: dict[str, Any] = {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
            read = ProviderObject(await client.get(target, "default", "m"), target, family.contract)
            done = contract.provisioned_path(read)
            status |= {done[1]: True} if len(done) == 2 else {done[1]: {done[2]: True}}
            value = await client.patch(target, "default", "m", {"status": status}, subresource="status")
            read = ProviderObject(value, target, family.contract)
            assert contract.provisioned(read)
            assert contract.provider_id(read) == "x:///1"
            assert contract.addresses(read) == status["addresses"]
            assert family.machine.decode(value).spec.script.boot_seconds == 1.5
    finally:
        await server.stop()


def test_failure_domains_are_read_equally_from_both_contracts() -> None:
    found = []
    for family, domains in ((NEW, [{"name": "a", "controlPlane": True}]), (OLD, {"a": {"controlPlane": True}})):
        obj = {"metadata": {"name": "c"}, "status": {"failureDomains": domains}}
        value = msgspec.json.encode(obj)
        family.cluster.decode(value)
        found.append(contract.failure_domains(ProviderObject(value, family.cluster.target, family.contract)))
    assert found[0] == found[1] == [{"name": "a", "controlPlane": True}]


def test_control_plane_definition_has_scale_subresource() -> None:
    for family in FAMILIES:
        name = external.definition_name(family.group, family.control_plane.name)
        assert BY_NAME[name]["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"
