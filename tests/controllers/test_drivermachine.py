"""A `<Driver>Machine` on its way to a managed host, on either engine. The test plays the Job."""

from __future__ import annotations

import msgspec
import pytest
import pytest_asyncio

from remuda.capi.types import CLUSTER
from remuda.kube.core import NAMESPACES, ROLES, SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.providers.shared import names
from remuda.providers.shared.jobs import job_spec
from remuda.providers.shared.jobs.state import State
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from tests.controllers.drivermachines import BY_USER_DATA, FOUND, KIND, PATIENT, SCRIPT, Bench
from tests.controllers.engine import Engine, condition, named


@pytest_asyncio.fixture(loop_scope="session")
async def bench(engine: Engine) -> Bench:
    return await Bench.create(engine)


async def test_machine_becomes_ready_after_create_job_succeeds(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine(options={"size": "large", "disk": 20, "tags": ["a"]})
        job = await bench.job()
        assert not condition(await bench.says("Creating"), "Stalled")

        await bench.succeed(job)
        found = await bench.ready()
        await bench.settled()

    assert found["spec"]["providerID"] == "probe://i-1"
    assert found["status"]["ready"] is True
    assert found["status"]["initialization"] == {"provisioned": True}
    assert condition(found, "CreateJob")["status"] == "True"
    assert await bench.left() == ["secrets m-machine-state"]


@pytest.mark.parametrize(("maker", "told"), [("probe", {"bridge": "rm-1"}), ("other", {})])
async def test_job_order_includes_network_made_by_same_driver_only(
    bench: Bench, maker: str, told: dict[str, str]
) -> None:
    shared = {"apiVersion": RKE_CLUSTER.api_version, "kind": "RKECluster", "metadata": {"name": "c"}, "spec": {}}
    await bench.engine.create(RKE_CLUSTER.target, bench.namespace, shared)
    made = {"driver": maker, "network": {"bridge": "rm-1"}}
    await bench.engine.status(RKE_CLUSTER.target, bench.namespace, "c", {"infrastructure": made})
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.job()
        assert (await bench.order())["network"] == told


async def test_job_order_is_complete_and_job_may_access_one_secret(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.secret("cred", probecredentialConfig__token=b"t0ken", plain=b"x")
        made = await bench.machine(options={"size": "large"}, cloudCredentialSecretName="cred")
        job = await bench.job()
        order = await bench.order()
        data = await bench.data(names.provision("m"))
        credentials = await bench.data(names.credential_secret("m"))
        role = await bench.engine.get(ROLES, bench.namespace, names.provision("m"))

    assert (data["value"], data["format"]) == (SCRIPT, b"script")
    assert credentials == {"token": b"t0ken", "plain": b"x"}
    assert order["options"] == {"size": "large"}
    assert (order["driver"], order["action"], order["name"], order["cluster"]) == ("probe", "create", "m", "c")
    assert (order["uid"], order["stateSecret"]) == (made["metadata"]["uid"], "m-machine-state")
    assert role is not None
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["m-machine-state"],
            "verbs": ["get", "update", "patch"],
        }
    ]
    spec = job["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert (spec["managedBy"], spec["backoffLimit"]) == ("remuda.dev/job-runner", 0)
    assert spec["activeDeadlineSeconds"] == 1800
    assert container["command"] == ["remuda", "machine-job"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/run/secrets/machine",
        "/run/secrets/credentials",
    }
    assert "t0ken" not in str(job)
    labels = job["metadata"]["labels"]
    assert labels["rke.cattle.io/infra-machine-kind"] == "ProbeMachine"
    assert labels["rke.cattle.io/infra-remove"] == "false"
    assert labels["rke.cattle.io/capi-machine-name"] == "m"


async def test_machine_with_user_data_becomes_ready_when_agent_connects(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine()
        await bench.succeed(await bench.job(), BY_USER_DATA)
        waiting = await bench.says("WaitingForAgent")
        await bench.settled()
        assert await bench.left() == ["secrets m-machine-state"], "what the Job needed goes before the agent calls"
        assert "provisioned" not in waiting["status"].get("initialization", {})
        assert waiting["spec"]["providerID"] == "probe:///z/i-7"

        await bench.connect()
        found = await bench.ready()

    assert found["status"]["addresses"] == [
        {"type": "InternalIP", "address": "10.0.0.7"},
        {"type": "Hostname", "address": "m"},
    ]
    assert found["status"]["failureDomain"] == "z"


async def test_ready_condition_names_each_unmet_precondition(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster(provisioned=False)
        await bench.machine(bootstrapped=False)
        found = await bench.says("WaitingForInfrastructure")
        assert f"Cluster {bench.namespace}/c" in condition(found, "Ready")["message"]

        await bench.provision_cluster()
        found = await bench.says("WaitingForBootstrapData")
        assert "RKEBootstrap" in condition(found, "Ready")["message"]
        assert not found["metadata"].get("finalizers"), "nothing was asked for yet"

        await bench.bootstrap()
        await bench.job()


async def test_missing_credential_is_named_in_condition(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine(cloudCredentialSecretName="nowhere")
        found = await bench.says("CredentialNotFound")
        assert f"{bench.namespace}/nowhere" in condition(found, "Ready")["message"]
        assert await bench.jobs() == []


async def test_credential_from_tenant_credential_namespace_is_used(bench: Bench) -> None:
    place = f"{bench.namespace}-credentials"
    await bench.engine.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud"}, "stringData": {"token": "t0ken"}}
    await bench.engine.create(SECRETS, place, secret)
    async with bench.running():
        await bench.cluster()
        await bench.machine(cloudCredentialSecretName=f"{place}:cloud")
        await bench.job()
        assert await bench.data(names.credential_secret("m")) == {"token": b"t0ken"}


async def test_a_credential_of_any_other_namespace_is_not_read(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine(cloudCredentialSecretName="kube-system:admin")
        found = await bench.says("BadCredentialReference")
        assert "cattle-global-data" in condition(found, "Ready")["message"]
        assert await bench.jobs() == []


async def test_paused_machine_creates_no_job_and_sets_paused_condition(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster(paused=True)
        await bench.machine()
        await bench.says("Paused", type="Paused")
        await bench.settled()
        assert await bench.jobs() == []

        await bench.engine.patch(CLUSTER.target, bench.namespace, "c", {"spec": {"paused": False}})
        await bench.job()


async def test_idle_machines_write_nothing(bench: Bench) -> None:
    async with bench.running() as manager:
        await bench.cluster()
        for name in ("a", "b"):
            await bench.machine(name)
        for name in ("a", "b"):
            await bench.succeed(await bench.job(name))
            await bench.ready(name)
        await bench.settled()
    async with bench.running() as manager:
        await bench.settled()
        assert manager.ledger.writes == 0
        await bench.engine.patch(CLUSTER.target, bench.namespace, "c", {"metadata": {"labels": {"x": "y"}}})
        await bench.settled()
        assert manager.ledger.writes == 0


async def test_failed_machine_waiting_for_retry_writes_nothing(bench: Bench) -> None:
    async with bench.running(PATIENT):
        await bench.cluster()
        await bench.machine()
        await bench.fail(await bench.job())
        await bench.says("CreateError")
        await bench.settled()
    async with bench.running(PATIENT) as manager:
        await bench.says("CreateError")
        await bench.settled()
        before = manager.ledger.writes
        manager.controllers["probemachine"].enqueue(Key(bench.namespace, "m"))
        await bench.settled()
        assert manager.ledger.writes == before


async def test_options_of_a_server_cannot_change(bench: Bench) -> None:
    await bench.cluster()
    await bench.machine(options={"size": "large", "namespace": "here", "tags": ["a"]})
    changes = ({"size": "small"}, {"size": None}, {"disk": 3}, {"namespace": "there"}, {"tags": ["b"]})
    for change in changes:
        with pytest.raises(StatusError, match="immutable"):
            await bench.engine.patch(KIND.target, bench.namespace, "m", {"spec": change})
    await bench.engine.patch(KIND.target, bench.namespace, "m", {"spec": {"common": {"labels": {"a": "b"}}}})
    await bench.engine.patch(KIND.target, bench.namespace, "m", {"spec": {"providerID": "probe://x"}})


async def test_moved_machine_gets_no_second_server(bench: Bench) -> None:
    """`clusterctl move` brings spec, annotations and Secrets, and no status."""
    async with bench.running():
        await bench.cluster()
        made = await bench.machine()
        await bench.succeed(await bench.job(), State(phase="bootstrapped", id="i-1", provider_id="probe://i-1"))
        await bench.ready()
        await bench.settled()
    identity = f"{bench.namespace}/m/{made['metadata']['uid']}"
    await bench.engine.status(KIND.target, bench.namespace, "m", dict.fromkeys(_STATUS))

    async with bench.running():
        found = await bench.ready()
        await bench.settled()
        assert await bench.jobs() == []
    assert found["metadata"]["annotations"][job_spec.IDENTITY] == identity


_STATUS = ("conditions", "ready", "initialization", "jobName", "addresses", "failures", "countedJob")


async def test_local_driver_requires_embedded_job_runner(bench: Bench) -> None:
    async with bench.running(found=msgspec.structs.replace(FOUND, local=True), run_jobs=False):
        await bench.cluster()
        await bench.machine()
        await bench.says("NeedsJobRunner")
        assert [named(job) for job in await bench.jobs()] == []


async def test_server_is_not_created_when_server_url_is_loopback(bench: Bench) -> None:
    found = msgspec.structs.replace(FOUND, own_loopback=True)
    async with bench.running(found=found, only_here="https://127.0.0.1:6443"):
        await bench.cluster()
        await bench.machine()
        said = condition(await bench.says("ServerUrlOnlyHere"), "Ready")["message"]
        assert "cannot reach the manager at https://127.0.0.1:6443" in said
        assert "--server-url" in said
        assert [named(job) for job in await bench.jobs()] == []
    async with bench.running(found=found):
        await bench.job()


async def test_kubernetes_job_has_image_limits_and_no_managed_by(bench: Bench) -> None:
    async with bench.running(run_jobs=False, image="registry.example/remuda:1", cpu="500m"):
        await bench.cluster()
        await bench.machine()
        job = await bench.job()
        pod = job["spec"]["template"]["spec"]
        assert "managedBy" not in job["spec"]
        assert pod["containers"][0]["image"] == "registry.example/remuda:1"
        assert pod["containers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi"}
        assert pod["securityContext"]["runAsNonRoot"] is True
        await bench.settled()

        await bench.delete()
        remove = await bench.job(removes=True)
        assert remove["metadata"]["uid"] != job["metadata"]["uid"]
