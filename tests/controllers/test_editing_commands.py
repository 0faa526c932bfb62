"""`remuda scale` and `remuda upgrade`: what they say they will do, what they change, and that it is nothing else."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest_asyncio

from remuda.capi.types import MACHINE
from remuda.cli import cluster_edits
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import load
from remuda.provisioning.edits import scale_patch
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, Json, named
from tests.controllers.program import Ended, remuda
from tests.controllers.provisioning_harness import ProvisioningHarness, pool

OLD, NEW = "v1.34.1+k3s1", "v1.34.2+k3s1"


class Declared:
    """A cluster of three servers and two workers, whose controllers have come to rest and stopped."""

    def __init__(self, harness: ProvisioningHarness) -> None:
        self.harness = harness

    async def run(self, *words: str | Path) -> Ended:
        return await remuda(self.harness.engine, *words, "-n", self.harness.namespace)

    async def cluster(self) -> Json:
        return await self.harness.get(CLUSTER)

    async def quantities(self) -> dict[str, int]:
        return {one["name"]: one["quantity"] for one in (await self.cluster())["spec"]["rkeConfig"]["machinePools"]}


@pytest_asyncio.fixture(loop_scope="session")
async def declared(engine: Engine) -> Declared:
    harness = await ProvisioningHarness.create(engine)
    await harness.config("servers")
    await harness.config("workers")
    async with harness.running():
        await harness.cluster(pool("servers", quantity=3), pool("workers", workerRole=True, quantity=2))
        await harness.made()
        await harness.machines(5)
        await harness.settled()
    return Declared(harness)


# ---- scale -----------------------------------------------------------------------------------------------------------


async def test_scale_workers_changes_only_worker_quantity(declared: Declared) -> None:
    before = await declared.cluster()
    done = await declared.run("scale", "prairie", "--workers", "4")
    assert done.code == 0, done.err
    created = [line.split() for line in done.out.splitlines() if "create" in line]
    assert [(line[1], line[2]) for line in created] == [("create", "workers")] * 2
    assert "5 machines unchanged" in done.out
    assert "scaled: workers 2 → 4" in done.out
    after = await declared.cluster()
    before["spec"]["rkeConfig"]["machinePools"][1]["quantity"] = 4
    assert after["spec"] == before["spec"]


async def test_apply_after_scale_has_no_conflict(declared: Declared, tmp_path: Path) -> None:
    manifest = await declared.cluster()
    kept = {key: manifest["metadata"][key] for key in ("name", "namespace")}
    manifest = {"apiVersion": CLUSTER.api_version, "kind": "Cluster", "metadata": kept, "spec": manifest["spec"]}
    path = tmp_path / "cluster.yaml"
    path.write_text(json.dumps(manifest))
    assert (await declared.run("apply", "-f", path)).code == 0
    assert (await declared.run("scale", "prairie", "--workers", "3")).code == 0
    done = await declared.run("apply", "-f", path)
    assert done.code == 0, done.err
    assert (await declared.quantities())["workers"] == 2


async def test_scale_dry_run_prints_steps_and_changes_nothing(declared: Declared) -> None:
    before = await declared.harness.versions()
    done = await declared.run("scale", "prairie", "--servers", "1", "--pool", "workers=3", "--dry-run", "-o", "json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)
    actions = sorted(step["action"] for step in found["steps"])
    assert actions == ["create", "delete", "delete", "keep", "keep", "keep"]
    assert "servers 3 → 1, workers 2 → 3" in done.err or "workers 2 → 3, servers 3 → 1" in done.err
    assert await declared.harness.versions() == before


async def test_invalid_scale_arguments_are_rejected_and_change_nothing(declared: Declared) -> None:
    before = await declared.harness.versions()
    for words, said in (
        (("--servers", "0"), "no etcd member would be left"),
        (("--pool", "wrokers=3"), "has no pool wrokers; it has servers (etcd+control plane, 3), workers (worker, 2)"),
        (("--pool", "workers=x"), "N is a number of machines"),
        (("--workers", "-1"), "the quantity must be 0 or more"),
        (("--workers", "3", "--pool", "workers=4"), "give only one"),
        ((), "missing number"),
    ):
        done = await declared.run("scale", "prairie", *words)
        assert done.code in (1, 2), words
        assert said in done.err
        assert done.out == ""
    assert await declared.harness.versions() == before
    done = await declared.run("scale", "meadow", "--workers", "3")
    assert (done.code, "cluster meadow not found" in done.err) == (1, True)


async def test_even_number_of_etcd_members_causes_one_warning(declared: Declared) -> None:
    done = await declared.run("scale", "prairie", "--servers", "2")
    assert done.code == 0, done.err
    assert done.err.count("use an odd number") == 1
    assert (await declared.quantities())["servers"] == 2


async def test_scale_to_current_size_changes_nothing(declared: Declared) -> None:
    before = await declared.harness.versions()
    done = await declared.run("scale", "prairie", "--workers", "2")
    assert done.code == 0
    assert "nothing to change" in done.err
    assert await declared.harness.versions() == before


async def test_scale_keeps_concurrent_changes(declared: Declared) -> None:
    """The command has looked; then somebody adds a pool before the one it means, and a label."""
    engine, namespace = declared.harness.engine, declared.harness.namespace
    seen = await declared.cluster()
    pools = seen["spec"]["rkeConfig"]["machinePools"]
    more = pool("extra", workerRole=True, machineConfigRef={"kind": "SimConfig", "name": "workers"})
    news = {"metadata": {"labels": {"a": "b"}}, "spec": {"rkeConfig": {"machinePools": [more, *deepcopy(pools)]}}}
    await engine.patch(CLUSTER.target, namespace, "prairie", news)
    client = HttpClient(load(engine.kubeconfig))
    try:
        assert await cluster_edits.carry_out(client, seen, lambda obj: scale_patch(obj, {"workers": 7}))
    finally:
        await client.close()
    assert await declared.quantities() == {"extra": 1, "servers": 3, "workers": 7}
    assert (await declared.cluster())["metadata"]["labels"]["a"] == "b"


async def test_scale_wait_times_out_with_exit_code_5(declared: Declared) -> None:
    done = await declared.run("scale", "prairie", "--workers", "1", "--wait", "--timeout", "1s")
    assert done.code == 5
    assert (await declared.quantities())["workers"] == 1


# ---- upgrade ---------------------------------------------------------------------------------------------------------


async def test_upgrade_changes_version_and_lists_each_machine(declared: Declared) -> None:
    before = await declared.cluster()
    done = await declared.run("upgrade", "prairie", "--kubernetes-version", NEW)
    assert done.code == 0, done.err
    machines = await declared.harness.engine.list(MACHINE.target, declared.harness.namespace)
    for machine in machines:
        assert any(named(machine) in line and "restart" in line for line in done.out.splitlines())
    assert f"is being upgraded: {OLD} → {NEW}" in done.out
    after = await declared.cluster()
    assert after["spec"] == before["spec"] | {"kubernetesVersion": NEW}


async def test_dry_run_of_an_upgrade_changes_nothing(declared: Declared) -> None:
    before = await declared.harness.versions()
    done = await declared.run("upgrade", "prairie", "--kubernetes-version", NEW, "--dry-run", "-o", "json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)
    assert {step["action"] for step in found["steps"]} == {"restart"}
    assert await declared.harness.versions() == before


async def test_unsupported_upgrade_target_is_rejected_with_reason(declared: Declared) -> None:
    before = await declared.harness.versions()
    for version, said in (
        ("v1.33.9+k3s1", "v1.33.9+k3s1 is a downgrade: "),
        ("v1.36.0+k3s1", "v1.36.0+k3s1 skips a minor version: "),
        ("v1.34.2+rke2r1", "cannot change the distribution of a cluster from k3s to rke2"),
        ("1.34", "is not a version of a distribution"),
    ):
        done = await declared.run("upgrade", "prairie", "--kubernetes-version", version, "--yes")
        assert done.code in (1, 2)
        assert said in done.err
        assert done.out == ""
    same = await declared.run("upgrade", "prairie", "--kubernetes-version", OLD)
    assert (same.code, "nothing to change" in same.err) == (0, True)
    assert await declared.harness.versions() == before


async def test_upgrade_rejects_version_older_than_running_nodes(declared: Declared) -> None:
    engine, namespace = declared.harness.engine, declared.harness.namespace
    name = min(named(one) for one in await engine.list(MACHINE.target, namespace) if "servers" in named(one))
    keys = (
        "architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion machineID operatingSystem osImage"
    )
    info = {**dict.fromkeys([*keys.split(), "systemUUID"], "x"), "kubeletVersion": "v1.34.3+k3s1"}
    await engine.status(MACHINE.target, namespace, name, {"nodeInfo": info})
    done = await declared.run("upgrade", "prairie", "--kubernetes-version", NEW)
    assert done.code == 1
    assert f"Machine {name} runs v1.34.3+k3s1" in done.err


async def test_upgrade_without_version_prints_current_and_available_versions(
    declared: Declared, tmp_path: Path
) -> None:
    done = await declared.run("upgrade", "prairie")
    assert done.code == 2
    assert f"cluster prairie has version {OLD}" in done.err
    assert "the server has no artefacts" in done.err
    assert "remuda artefacts add" in done.err
