"""Commands of every day: the state of clusters in one line, pause and resume, an edit, a retry, one machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.providers.shared.jobs.budget import RETRY
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, Json, named
from tests.controllers.program import Ended, remuda
from tests.controllers.provisioning_harness import SIM_MACHINE, ProvisioningHarness


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    return await ProvisioningHarness.with_one_server(engine)


async def run(harness: ProvisioningHarness, *words: str | Path) -> Ended:
    return await remuda(harness.engine, *words, "-n", harness.namespace)


async def test_get_clusters_prints_a_status_word_machines_and_a_reason(harness: ProvisioningHarness) -> None:
    done = await run(harness, "get", "clusters")
    assert done.code == 0, done.err
    heads, row = done.out.splitlines()
    assert heads.split() == ["NAME", "STATUS", "MACHINES", "VERSION", "DRIVER", "AGE", "REASON"]
    assert row.split()[:5] == ["prairie", "Creating", "0/1", "v1.34.1+k3s1", "sim"]
    assert "waiting for" in row
    assert (await run(harness, "get", "clusters", "--no-headers")).out.splitlines()[0].split()[0] == "prairie"
    assert (await run(harness, "get", "pcl", "--no-headers")).out.split()[0] == "prairie"
    assert (
        await run(harness, "get", "cluster/prairie", "-o", "name")
    ).out == "cluster.provisioning.cattle.io/prairie\n"
    done = await run(harness, "get", "cluster/prarie")
    assert done.code == 1
    assert "did you mean prairie?" in done.err
    (machine,) = await harness.machines(1)
    done = await run(harness, "get", f"machine/{named(machine)}", "cluster/prairie", "-o", "json")
    assert [one["kind"] for one in json.loads(done.out)["items"]] == ["Machine", "Cluster"]
    done = await run(harness, "get", "cluster/prairie", "machines")
    assert (done.code, "KIND/NAME" in done.err) == (2, True)


async def test_paused_cluster_is_shown_and_resumed(harness: ProvisioningHarness) -> None:
    for words, said, paused in (
        (("pause", "cluster/prairie"), "paused", True),
        (("pause", "prairie"), "is paused already", True),
        (("resume", "cluster", "prairie"), "resumed", False),
        (("resume", "prairie"), "is not paused", False),
    ):
        done = await run(harness, *words)
        assert done.code == 0, done.err
        assert said in done.out
        assert bool((await harness.get(CAPI_CLUSTER))["spec"].get("paused")) is paused
        shown = (await run(harness, "get", "clusters", "--no-headers")).out.split()[1]
        assert (shown == "Paused") is paused
    done = await run(harness, "pause", "prarie")
    assert (done.code, "did you mean prairie?" in done.err) == (1, True)


# ---- edit ------------------------------------------------------------------------------------------------------------


def editor(tmp_path: Path, before: str, after: str) -> str:
    """An editor that replaces a text, as a user would."""
    path = tmp_path / "editor"
    path.write_text(f"#!/bin/sh\nsed -i 's/{before}/{after}/' \"$1\"\n")
    path.chmod(0o755)
    return str(path)


async def test_edit_shows_the_plan_and_asks_before_machines_are_deleted(
    harness: ProvisioningHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def edit(before: str, after: str, *more: str) -> Ended:
        monkeypatch.setenv("EDITOR", editor(tmp_path, before, after))
        monkeypatch.delenv("VISUAL", raising=False)
        return await remuda(harness.engine, "edit", "prairie", "-n", harness.namespace, *more, tmp=tmp_path)

    async def quantity() -> int:
        return int((await harness.get(CLUSTER))["spec"]["rkeConfig"]["machinePools"][0]["quantity"])

    done = await edit("quantity: 1", "quantity: 3")
    assert done.code == 0, done.err
    assert done.out.count("create") == 2
    assert "edited" in done.out
    assert await quantity() == 3
    (machine,) = await harness.machines(1)  # no controller is at work
    done = await edit("quantity: 3", "quantity: 0")
    assert done.code == 1, done.out
    assert "no etcd member would be left" in done.err or "machinePools" in done.err
    assert await quantity() == 3
    done = await edit(r"^\(    - \|      \)name: servers$", r"\1name: others")  # the pool, not its Config
    assert any(line.split()[1:2] == ["delete"] and named(machine) in line for line in done.out.splitlines())
    assert (done.code, "repeat the command with --yes" in done.err) == (3, True), done.err
    saved = Path(done.err.rpartition(" saved in ")[2].strip())
    assert yaml.safe_load(saved.read_text())["spec"]["rkeConfig"]["machinePools"][0]["name"] == "others"
    done = await edit("nothing", "else")
    assert (done.code, "nothing was changed" in done.err) == (0, True)
    done = await edit("kind: Cluster", "kind: Machine")
    assert (done.code, "kind cannot be changed" in done.err) == (1, True)
    done = await edit("spec:", "spec: {a: [")
    assert (done.code, "is not valid YAML" in done.err) == (1, True)
    assert await quantity() == 3


# ---- machines --------------------------------------------------------------------------------------------------------


async def test_retry_marks_only_servers_whose_attempts_failed(harness: ProvisioningHarness) -> None:
    (machine,) = await harness.machines(1)
    server = machine["spec"]["infrastructureRef"]["name"]
    done = await run(harness, "retry", "prairie")
    assert done.code == 1
    assert "has failed" in done.err
    assert RETRY not in (await _server(harness, server))["metadata"].get("annotations", {})
    await harness.engine.status(SIM_MACHINE.target, harness.namespace, server, {"failures": 5})
    values = set()
    for words in (("cluster", "prairie"), (f"machine/{named(machine)}",)):
        done = await run(harness, "retry", *words)
        assert done.code == 0, done.err
        assert f"SimMachine {harness.namespace}/{server}: retry requested" in done.out
        values.add((await _server(harness, server))["metadata"]["annotations"][RETRY])
    assert len(values) == 2, "an old value would begin nothing"


async def _server(harness: ProvisioningHarness, name: str) -> Json:
    found = await harness.engine.get(SIM_MACHINE.target, harness.namespace, name)
    assert found is not None
    return found


async def test_describe_machine_shows_facts_tree_and_next_step(harness: ProvisioningHarness) -> None:
    (machine,) = await harness.machines(1)
    done = await run(harness, "describe", f"machine/{named(machine)}")
    assert done.code == 0, done.err
    facts = dict(line.split(":", 1) for line in done.out.split("\n\n")[0].splitlines())
    assert (facts["Pool"].strip(), facts["Cluster"].strip()) == ("servers", "prairie")
    assert f"SimMachine {machine['spec']['infrastructureRef']['name']}" in done.out
    assert "next: " in done.out
    done = await run(harness, "describe", "machine", named(machine), "-o", "json")
    assert json.loads(done.out)["tree"]["kind"] == "Machine"
    done = await run(harness, "describe", "machine", f"{named(machine)}x")
    assert (done.code, f"did you mean {named(machine)}?" in done.err) == (1, True)


# ---- the wrong kubeconfig --------------------------------------------------------------------------------------------


async def test_kubeconfig_without_management_plane_is_recognized(harness: ProvisioningHarness, tmp_path: Path) -> None:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "bare", port=0))
    try:
        path = tmp_path / "bare" / "admin.kubeconfig"
        for words in (
            "get clusters",
            "why prairie",
            "scale prairie --workers 2",
            "create cluster prairie",
            "user list",
        ):
            done = await remuda(harness.engine, *words.split(), "--kubeconfig", path)
            assert done.code == 1, words
            assert "management plane" in done.err, words
            assert "without Remuda" in done.err, words
        done = await remuda(harness.engine, "get", "namespace", "nowhere", "--kubeconfig", path)
        assert "management plane" not in done.err
    finally:
        await server.stop()
