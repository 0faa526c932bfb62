"""`remuda scale`, `remuda upgrade` and `remuda apply` of a cluster that exists: what they say they will do, what they
change, that it is nothing else, and that they destroy nothing unasked."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest_asyncio

from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.cli import cluster_edits
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import load
from remuda.kube.objects import Kind
from remuda.provisioning.edits import scale_patch
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, Json, named
from tests.controllers.program import Ended, remuda
from tests.controllers.provisioning_harness import CONFIG, ProvisioningHarness, pool

OLD, NEW = "v1.34.1+k3s1", "v1.34.2+k3s1"


class Declared:
    """A cluster of three servers and two workers, whose controllers have come to rest and stopped."""

    def __init__(self, harness: ProvisioningHarness) -> None:
        self.harness = harness

    async def run(self, *words: str | Path) -> Ended:
        return await remuda(self.harness.engine, *words, "-n", self.harness.namespace)

    async def apply(self, path: Path, *options: str) -> Ended:
        """The objects were made by another field manager."""
        return await self.run("apply", "-f", path, "--force-conflicts", *options)

    async def cluster(self) -> Json:
        return await self.harness.get(CLUSTER)

    async def manifest(self, path: Path, **quantities: int) -> Path:
        """A file that declares the cluster as it is, but for these numbers of machines."""
        found = await self.cluster()
        for one in found["spec"]["rkeConfig"]["machinePools"]:
            one["quantity"] = quantities.get(one["name"], one["quantity"])
        return self.write(path, CLUSTER, "prairie", spec=found["spec"])

    def write(self, path: Path, kind: Kind[Any], name: str, **content: Any) -> Path:
        metadata = {"name": name, "namespace": self.harness.namespace}
        path.write_text(
            json.dumps({"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **content})
        )
        return path

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
    path = await declared.manifest(tmp_path / "cluster.yaml")
    assert (await declared.run("apply", "-f", path)).code == 0
    assert (await declared.run("scale", "prairie", "--workers", "3")).code == 0
    done = await declared.run("apply", "-f", path, "--yes")
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
    done = await declared.run("scale", "prairie", "--servers", "2", "--yes")
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
    done = await declared.run("scale", "prairie", "--workers", "1", "--yes", "--wait", "--timeout", "1s")
    assert done.code == 5
    assert (await declared.quantities())["workers"] == 1


async def test_scale_down_without_terminal_needs_yes(declared: Declared) -> None:
    before = await declared.harness.versions()
    done = await declared.run("scale", "prairie", "--servers", "1")
    assert done.code == 3
    assert "repeat the command with --yes" in done.err
    assert "deletes 2 machines" in done.err
    assert "etcd of" in done.err
    assert "shrinks from 3 to 1 member, which tolerates the failure of 0 instead of 1" in done.err
    assert await declared.harness.versions() == before


# ---- apply -----------------------------------------------------------------------------------------------------------


async def test_apply_that_deletes_machines_needs_yes(declared: Declared, tmp_path: Path) -> None:
    path = await declared.manifest(tmp_path / "cluster.yaml", workers=0)
    before = await declared.harness.versions()
    done = await declared.apply(path)
    assert done.code == 3
    assert done.out == ""
    assert sum(" delete " in line for line in done.err.splitlines()) == 2  # the plan
    assert "the change deletes 2 machines" in done.err
    assert "--yes" in done.err
    assert await declared.harness.versions() == before
    tried = await declared.apply(path, "--dry-run")
    assert (tried.code, "delete" in tried.err) == (0, True)
    assert await declared.harness.versions() == before
    done = await declared.apply(path, "--yes")
    assert done.code == 0, done.err
    assert "deletes" not in done.err
    assert done.out == "cluster.provisioning.cattle.io/prairie configured\n"
    assert (await declared.quantities())["workers"] == 0


async def test_apply_that_destroys_nothing_does_not_ask(declared: Declared, tmp_path: Path) -> None:
    path = await declared.manifest(tmp_path / "cluster.yaml", workers=4)
    done = await declared.apply(path)
    assert (done.code, "the change" in done.err) == (0, False)
    assert (await declared.quantities())["workers"] == 4


async def test_apply_of_a_config_that_replaces_machines_needs_yes(declared: Declared, tmp_path: Path) -> None:
    """The Cluster is not in the file. Another tool had set the option, as kubectl does; now the file drops it."""
    harness = declared.harness
    await harness.engine.client.patch(
        CONFIG.target, harness.namespace, "workers", {"zone": "b"}, field_manager="kubectl-client-side-apply"
    )
    before = (await harness.get(MACHINE_DEPLOYMENT, "prairie-workers"))["spec"]["template"]
    async with harness.running():
        await harness.until(MACHINE_DEPLOYMENT, "prairie-workers", lambda obj: obj["spec"]["template"] != before)
        await harness.settled()
    path = declared.write(tmp_path / "config.yaml", CONFIG, "workers")
    versions = await harness.versions()
    done = await declared.apply(path)
    assert done.code == 3, done.err
    assert "the change replaces" in done.err
    assert "driver option zone" in done.err
    assert await harness.versions() == versions


async def test_apply_of_a_config_without_defaulted_fields_does_not_ask(declared: Declared, tmp_path: Path) -> None:
    """Another tool had set a field to its default. The apply drops it, and the server sets the default again."""
    harness = declared.harness
    cloud = (await harness.get(CONFIG, "workers"))["cloud"]
    await harness.engine.client.patch(
        CONFIG.target, harness.namespace, "workers", {"cloud": "other"}, field_manager="kubectl-client-side-apply"
    )
    await harness.engine.client.patch(
        CONFIG.target, harness.namespace, "workers", {"cloud": cloud}, field_manager="kubectl-client-side-apply"
    )
    done = await declared.apply(declared.write(tmp_path / "config.yaml", CONFIG, "workers"))
    assert (done.code, "the change" in done.err) == (0, False), done.err
    assert (await harness.get(CONFIG, "workers"))["cloud"] == cloud


async def test_apply_of_an_undeclared_deployment_that_deletes_machines_needs_yes(
    declared: Declared, tmp_path: Path
) -> None:
    harness = declared.harness
    found = await harness.get(MACHINE_DEPLOYMENT, "prairie-workers")
    spec = {**found["spec"], "replicas": 2, "selector": {"matchLabels": {"of": "mine"}}}
    spec["template"]["metadata"] = {"labels": {"of": "mine"}}
    own = {"apiVersion": MACHINE_DEPLOYMENT.api_version, "kind": "MachineDeployment", "metadata": {"name": "mine"}}
    async with harness.running():
        await harness.engine.create(MACHINE_DEPLOYMENT.target, harness.namespace, {**own, "spec": spec})
        await harness.machines(7)
        await harness.settled()
    path = declared.write(tmp_path / "mine.yaml", MACHINE_DEPLOYMENT, "mine", spec=spec | {"replicas": 0})
    done = await declared.apply(path)
    assert done.code == 3, done.err
    assert "the change deletes 2 machines" in done.err
    assert (await harness.get(MACHINE_DEPLOYMENT, "mine"))["spec"]["replicas"] == 2


# ---- upgrade ---------------------------------------------------------------------------------------------------------


async def test_upgrade_changes_version_and_lists_each_machine(declared: Declared) -> None:
    before = await declared.cluster()
    done = await declared.run("upgrade", "prairie", "--kubernetes-version", NEW, "--allow-unknown-version")
    assert done.code == 0, done.err
    machines = await declared.harness.engine.list(MACHINE.target, declared.harness.namespace)
    for machine in machines:
        assert any(named(machine) in line and "restart" in line for line in done.out.splitlines())
    assert f"is being upgraded: {OLD} → {NEW}" in done.out
    after = await declared.cluster()
    assert after["spec"] == before["spec"] | {"kubernetesVersion": NEW}


async def test_dry_run_of_an_upgrade_changes_nothing(declared: Declared, tmp_path: Path) -> None:
    channels = tmp_path / "channels.yaml"
    channels.write_text(json.dumps({"distributions": {"k3s": {"channels": {"stable": NEW}}}}))
    before = await declared.harness.versions()
    done = await declared.run(
        *("upgrade", "prairie", "--kubernetes-version", "stable", "--channels", channels, "--dry-run", "-o", "json")
    )
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
    done = await declared.run("upgrade", "prairie", "--kubernetes-version", NEW, "--allow-unknown-version")
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
