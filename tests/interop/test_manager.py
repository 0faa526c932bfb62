"""`remuda manager` on the real kube-apiserver: its webhooks in force, left behind and taken back; and beside upstream's
own definitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.jobs import MANAGED_BY
from remuda.provisioning.admission.deletion import DELETE_FOR_MOVE
from remuda.provisioning.apply import APPLIED
from tests.e2e.program import Ended, run
from tests.lab import Reply, Upstream
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_source
from tests.lab.ports import free_port
from tests.lab.programs import Program
from tests.lab.up import eventually

CLUSTERS = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
NAMESPACES = "/api/v1/namespaces"
TEMPLATES = "/apis/rke.cattle.io/v1/namespaces/ending/rkebootstraptemplates"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def server() -> Iterator[Upstream]:
    """One of one's own: definitions and webhooks are everybody's."""
    server = Upstream()
    yield server
    server.stop()


@pytest.fixture
async def programs() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def started(server: Upstream, programs: AsyncExitStack, folder: Path, *flags: str) -> Program:
    command = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(server.kubeconfig), *flags)
    program = Program("manager", command, folder)
    programs.push_async_callback(program.stop)
    await program.start()
    assert await program.ready(), program.said
    return program


def cluster(name: str, block: str = "10.0.0.0/16") -> dict[str, Any]:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {
            "infrastructureRef": {"apiGroup": "any.cluster.x-k8s.io", "kind": "AnyCluster", "name": name},
            "clusterNetwork": {"pods": {"cidrBlocks": [block]}},
        },
    }


async def until(server: Upstream, obj: dict[str, Any], code: int) -> Reply:
    """The first answer of that code; the server hears of webhooks by a watch of its own."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            reply = server.http("POST", f"{CLUSTERS}?dryRun=All", obj)
            if reply.code == code:
                return reply
            await asyncio.sleep(0.1)


async def test_webhooks_are_enforced_persist_and_can_be_removed(
    server: Upstream, programs: AsyncExitStack, tmp_path: Path
) -> None:
    serves = ("--webhook-listen", f"127.0.0.1:{free_port()}", "--nodes-listen", f"127.0.0.1:{free_port()}")
    manager = await started(server, programs, tmp_path, *serves, "--run-jobs", "--data-dir", str(tmp_path / "data"))
    refused = await until(server, cluster("c", block="ten"), 422)
    assert '"validation.cluster.cluster.x-k8s.io" denied the request' in refused.body["message"]
    assert "must be a CIDR, such as 10.1.0.0/16" in refused.body["message"]
    assert server.http("POST", CLUSTERS, cluster("c")).code == 201
    refuses_jobs_for_the_runner(server)
    makes_templates(server)

    manager.kill()
    await manager.ended()
    unchecked = server.http("POST", CLUSTERS, cluster("d"))
    assert (unchecked.code, "failed calling webhook" in unchecked.body["message"]) == (500, True)
    deletes_all_but_what_is_guarded(server)

    removed = run("manager", "--kubeconfig", server.kubeconfig, "--remove-webhooks")
    assert (removed.code, removed.err) == (0, "")
    assert removed.out.startswith("remuda manager: webhooks removed")
    await until(server, cluster("d"), 201)


def refuses_jobs_for_the_runner(server: Upstream) -> None:
    """Try it as a user with `edit`, who may create every other Job."""
    binding = {
        "metadata": {"name": "tenant"},
        "subjects": [{"kind": "User", "name": "tenant", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "edit", "apiGroup": "rbac.authorization.k8s.io"},
    }
    assert server.http("POST", ROLE_BINDINGS, binding).code == 201
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}
    forged = {"metadata": {"name": "forged"}, "spec": {"template": template, "managedBy": MANAGED_BY}}
    # The authoriser learns of a new binding from a watch.
    eventually(lambda: server.http("POST", JOBS, job, as_user="tenant").code == 201, lambda: "the tenant has no rights")
    refused = server.http("POST", JOBS, forged, as_user="tenant")
    assert (refused.code, "only the manager of Remuda may write Jobs" in refused.body["message"]) == (403, True)


def makes_templates(server: Upstream) -> None:
    """In a namespace of a user with all rights there: one as a declared Cluster has it, one moved, one of nobody."""
    assert server.http("POST", NAMESPACES, {"metadata": {"name": "ending"}}).code == 201
    binding = {
        "metadata": {"name": "rider"},
        "subjects": [{"kind": "User", "name": "rider", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"},
    }
    assert server.http("POST", ROLE_BINDINGS.replace("default", "ending"), binding).code == 201
    for name, notes in (("kept", [APPLIED]), ("moved", [APPLIED, DELETE_FOR_MOVE]), ("own", [])):
        metadata = {"name": name, "annotations": dict.fromkeys(notes, "")}
        made = {"apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrapTemplate", "metadata": metadata}
        reply = server.http("POST", TEMPLATES, {**made, "spec": {"template": {"spec": {}}}})
        assert reply.code == 201, reply.body


def deletes_all_but_what_is_guarded(server: Upstream) -> None:
    """No manager runs, so nobody can judge a deletion that may be a mistake; all others are none of its business."""
    kept = lambda: server.http("DELETE", f"{TEMPLATES}/kept", as_user="rider")  # noqa: E731
    eventually(lambda: kept().code == 500, lambda: str(kept().body))  # once the authoriser knows the user
    assert "failed calling webhook" in kept().body["message"]
    for name in ("moved", "own"):
        assert server.http("DELETE", f"{TEMPLATES}/{name}", as_user="rider").code == 200
    assert server.http("DELETE", f"{NAMESPACES}/ending").code == 200
    place = lambda: server.http("GET", f"{NAMESPACES}/ending")  # noqa: E731
    eventually(lambda: place().code == 404, lambda: str(place().body))


async def test_leftover_webhooks_do_not_block_next_manager(
    server: Upstream, programs: AsyncExitStack, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    manager = await started(server, programs, tmp_path, "--webhook-listen", address, "--no-leader-elect")
    await until(server, cluster("c", block="ten"), 422)
    manager.kill()
    await manager.ended()
    await started(server, programs, tmp_path, "--webhook-listen", address, "--no-leader-elect")
    await until(server, cluster("c"), 201)


async def test_manager_refuses_to_start_beside_upstream_definitions(
    server: Upstream, programs: AsyncExitStack, tmp_path: Path
) -> None:
    bases = require_source("clusterctl") / "config" / "crd" / "bases"
    for plural in ("machines", "machinesets"):
        theirs = yaml.safe_load((bases / f"cluster.x-k8s.io_{plural}.yaml").read_text())
        assert server.http("POST", DEFINITIONS, theirs).code == 201
    refused: Ended = run("manager", "--kubeconfig", server.kubeconfig)
    assert (refused.code, refused.out) == (1, "")
    assert "machines.cluster.x-k8s.io, machinesets.cluster.x-k8s.io: already installed by another" in refused.err
    assert len(server.http("GET", DEFINITIONS).body["items"]) == 2
