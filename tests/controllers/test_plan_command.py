"""`remuda plan`: what an edit would do to each machine, said before it is made, and nothing written by saying it."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio
import yaml

from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.kube.core import SECRETS
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.provisioning.preview_loader import Previews
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, named
from tests.controllers.provisioning_harness import CONFIG, ProvisioningHarness, pool


class PlanOutput(NamedTuple):
    exit_code: int
    output: str
    errors: str


class Planner:
    """A cluster of three servers and two workers, and the manifest it was made from."""

    def __init__(self, harness: ProvisioningHarness, cluster: Json, folder: Path) -> None:
        self.harness = harness
        self.folder = folder
        self.cluster = cluster
        self.configs: list[Json] = []

    def edited(self, **rke: Any) -> Json:
        obj = deepcopy(self.cluster)
        obj["spec"]["rkeConfig"] |= rke
        return obj

    def pools(self, **changes: Json) -> list[Json]:
        """The pools with some of their fields changed."""
        found = deepcopy(self.cluster["spec"]["rkeConfig"]["machinePools"])
        return [one | changes.get(one["name"], {}) for one in found]

    async def run(self, *objects: Json, options: tuple[str, ...] = ()) -> PlanOutput:
        return await self.run_text(yaml.safe_dump_all(objects), options)

    async def run_text(self, text: str, options: tuple[str, ...] = ()) -> PlanOutput:
        """The command itself, as a process: it works for itself, and the loop is guarded."""
        path = self.folder / "manifest.yaml"
        path.write_text(text)
        arguments = ["plan", "-f", str(path), "--kubeconfig", str(self.harness.engine.kubeconfig), *options]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "remuda.cli.main", *arguments, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            output, errors = await process.communicate()
        return PlanOutput(process.returncode or 0, output.decode(), errors.decode())

    async def steps(self, *objects: Json) -> list[Json]:
        before = await self.harness.versions()
        (found,) = await Previews(self.harness.engine.client, [deepcopy(obj) for obj in objects]).make()
        assert await self.harness.versions() == before, "nothing may be written"
        return [msgspec.to_builtins(step) for step in found.steps]


@pytest_asyncio.fixture(loop_scope="session")
async def planner(engine: Engine, tmp_path: Path) -> Planner:
    harness = await ProvisioningHarness.create(engine)
    await harness.config("servers")
    await harness.config("workers")
    strategy = {"workerDrainOptions": {"enabled": True}, "workerConcurrency": "2"}
    async with harness.running():
        pools = (pool("servers", quantity=3), pool("workers", workerRole=True, quantity=2))
        made = await harness.cluster(*pools, upgradeStrategy=strategy)
        await harness.made()
        machines = await harness.machines(5)
        await harness.settled()
    first = min(named(one) for one in machines if "servers" in named(one))
    await engine.patch(
        RKE_BOOTSTRAP.target, harness.namespace, first, {"metadata": {"labels": {"rke.cattle.io/init-node": "true"}}}
    )
    manifest = {
        "apiVersion": CLUSTER.api_version,
        "kind": "Cluster",
        "metadata": {"name": "prairie", "namespace": harness.namespace},
        "spec": made["spec"],
    }
    return Planner(harness, manifest, tmp_path)


def by_action(steps: list[Json]) -> dict[str, int]:
    found: dict[str, int] = {}
    for step in steps:
        found[step["action"]] = found.get(step["action"], 0) + 1
    return found


async def test_unchanged_cluster_keeps_every_machine(planner: Planner) -> None:
    steps = await planner.steps(planner.cluster)
    assert by_action(steps) == {"keep": 5}


async def test_version_change_restarts_servers_one_by_one_and_drains_workers(planner: Planner) -> None:
    edit = planner.edited()
    edit["spec"]["kubernetesVersion"] = "v1.34.2+k3s1"
    steps = await planner.steps(edit)
    assert by_action(steps) == {"restart": 3, "drain": 2}
    assert [step["turn"] for step in steps] == [1, 2, 3, 4, 4]
    assert [step["tier"] for step in steps] == ["bootstrap", "etcd", "etcd", "worker", "worker"]
    assert all("version v1.34.1+k3s1 → v1.34.2+k3s1" in step["why"] for step in steps)


async def test_config_change_restarts_machines_and_names_key(planner: Planner) -> None:
    steps = await planner.steps(planner.edited(machineGlobalConfig={"kubelet-arg": ["max-pods=50"]}))
    assert "keep" not in by_action(steps)
    assert all("config key kubelet-arg" in step["why"] for step in steps)


async def test_server_only_config_key_keeps_workers(planner: Planner) -> None:
    steps = await planner.steps(planner.edited(machineGlobalConfig={"disable": ["traefik"]}))
    changed = {step["pool"] for step in steps if step["action"] != "keep"}
    assert changed == {"servers"}


async def test_pool_labels_change_machines_in_place(planner: Planner) -> None:
    steps = await planner.steps(planner.edited(machinePools=planner.pools(workers={"labels": {"tier": "web"}})))
    (changed,) = {step["pool"] for step in steps if step["action"] != "keep"}
    assert changed == "workers"
    assert not {step["action"] for step in steps} & {"replace", "create", "delete"}
    assert all("node-label" in step["why"] for step in steps if step["pool"] == "workers")


async def test_drivers_option_replaces_the_machines_of_its_pool_only(planner: Planner) -> None:
    config = {
        "apiVersion": CONFIG.api_version,
        "kind": CONFIG.name,
        "metadata": {"name": "workers", "namespace": planner.harness.namespace},
        "zone": "b",
    }
    steps = await planner.steps(config)  # the Cluster itself is not in the manifest
    assert by_action(steps) == {"keep": 3, "replace": 2}
    assert {step["why"] for step in steps if step["action"] == "replace"} == {"driver option zone"}
    table = await planner.run(config, planner.cluster, options=("--no-replace",))
    assert table.exit_code == 3
    assert "driver option zone" in table.output


async def test_quantity_change_creates_and_deletes_machines(planner: Planner) -> None:
    steps = await planner.steps(
        planner.edited(machinePools=planner.pools(servers={"quantity": 1}, workers={"quantity": 3}))
    )
    assert by_action(steps) == {"keep": 3, "delete": 2, "create": 1}
    assert {step["pool"] for step in steps if step["action"] == "delete"} == {"servers"}


async def test_removed_pool_deletes_machines_and_added_pool_creates_machines(planner: Planner) -> None:
    kept = planner.pools()[:1]
    new = pool("extra", workerRole=True, quantity=2, machineConfigRef={"kind": "SimConfig", "name": "workers"})
    steps = await planner.steps(planner.edited(machinePools=[*kept, new]))
    assert by_action(steps) == {"keep": 3, "delete": 2, "create": 2}


async def test_registry_change_is_applied_in_place(planner: Planner) -> None:
    mirrors = {"docker.io": {"endpoint": ["https://m.example"]}}
    steps = await planner.steps(planner.edited(registries={"mirrors": mirrors}))
    assert {step["why"].partition(",")[0] for step in steps} == {"registries"}
    assert not {step["action"] for step in steps} & {"replace", "create", "delete", "keep"}


async def test_plan_uses_file_secret_from_manifest(planner: Planner) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "motd",
            "namespace": planner.harness.namespace,
            "annotations": {"rke.cattle.io/object-authorized-for-clusters": "prairie"},
        },
        "stringData": {"motd": "hello"},
    }
    files = [{"fileSources": [{"secret": {"name": "motd", "items": [{"key": "motd", "path": "/etc/motd"}]}}]}]
    steps = await planner.steps(secret, planner.edited(machineSelectorFiles=files))
    assert all("file /etc/motd" in step["why"] for step in steps)
    assert await planner.harness.engine.get(SECRETS, planner.harness.namespace, "motd") is None


async def test_missing_referenced_secret_is_reported(planner: Planner) -> None:
    files = [{"fileSources": [{"secret": {"name": "gone", "items": []}}]}]
    result = await planner.run(planner.edited(machineSelectorFiles=files))
    assert f"blocked: Secret {planner.harness.namespace}/gone: does not exist" in result.output


async def test_server_rejection_is_reported_without_plan(planner: Planner) -> None:
    edit = planner.edited()
    edit["spec"]["kubernetesVersion"] = "v1.33.0+k3s1"
    result = await planner.run(edit)
    assert result.exit_code == 1
    assert "is a downgrade" in result.errors
    assert result.output == ""


async def test_new_cluster_plan_creates_all_machines(planner: Planner) -> None:
    new = deepcopy(planner.cluster)
    new["metadata"]["name"] = "meadow"
    result = await planner.run(new)
    assert result.exit_code == 0, result.errors
    assert "(new)" in result.output
    told = await planner.run(new, options=("-o", "json"))
    (found,) = json.loads(told.output)
    assert found["new"]
    assert by_action(found["steps"]) == {"create": 5}


async def test_held_change_is_reported_as_held(planner: Planner) -> None:
    """The option changed before the policy came: the controller holds it, and the preview says so."""
    harness = planner.harness
    await harness.engine.patch(CONFIG.target, harness.namespace, "workers", {"zone": "c"})
    steps = await planner.steps(planner.edited(machinePools=planner.pools(workers={"replacement": "inPlaceOnly"})))
    assert by_action(steps) == {"keep": 3, "held": 2}
    assert all("because of zone" in step["why"] for step in steps if step["action"] == "held")


async def test_objects_without_names_are_rejected(planner: Planner) -> None:
    result = await planner.run({"kind": "Cluster"})
    assert result.exit_code == 1
    assert "every object needs" in result.errors


async def test_previews_work_in_process(planner: Planner) -> None:
    (found,) = await Previews(planner.harness.engine.client, [planner.cluster]).make()
    assert not found.replaces
    machines = await planner.harness.engine.list(MACHINE.target, planner.harness.namespace)
    assert {step.machine for step in found.steps} == set(map(named, machines))
    assert len(await planner.harness.engine.list(MACHINE_DEPLOYMENT.target, planner.harness.namespace)) == 2


@pytest.mark.parametrize("text", ["a: [", "\x00"])
async def test_invalid_yaml_is_rejected(planner: Planner, text: str) -> None:
    result = await planner.run_text(text)
    assert result.exit_code == 1
    assert "not valid YAML" in result.errors
