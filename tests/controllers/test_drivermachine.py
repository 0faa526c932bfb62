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
from tests.controllers.driver_machine_harness import BY_USER_DATA, FOUND, KIND, PATIENT, SCRIPT, DriverMachineHarness
from tests.controllers.engine import Engine, condition, named


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> DriverMachineHarness:
    return await DriverMachineHarness.create(engine)


async def test_machine_becomes_ready_after_create_job_succeeds(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine(options={"size": "large", "disk": 20, "tags": ["a"]})
        job = await harness.job()
        assert not condition(await harness.says("Creating"), "Stalled")

        await harness.succeed(job)
        found = await harness.ready()
        await harness.settled()

    assert found["spec"]["providerID"] == "probe://i-1"
    assert found["status"]["ready"] is True
    assert found["status"]["initialization"] == {"provisioned": True}
    assert condition(found, "CreateJob")["status"] == "True"
    assert await harness.left() == ["secrets m-machine-state"]


@pytest.mark.parametrize(("maker", "told"), [("probe", {"bridge": "rm-1"}), ("other", {})])
async def test_job_order_includes_network_made_by_same_driver_only(
    harness: DriverMachineHarness, maker: str, told: dict[str, str]
) -> None:
    shared = {"apiVersion": RKE_CLUSTER.api_version, "kind": "RKECluster", "metadata": {"name": "c"}, "spec": {}}
    await harness.engine.create(RKE_CLUSTER.target, harness.namespace, shared)
    made = {"driver": maker, "network": {"bridge": "rm-1"}}
    await harness.engine.status(RKE_CLUSTER.target, harness.namespace, "c", {"infrastructure": made})
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.job()
        assert (await harness.order())["network"] == told


async def test_job_order_is_complete_and_job_may_access_one_secret(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.secret("cred", probecredentialConfig__token=b"t0ken", plain=b"x")
        made = await harness.machine(options={"size": "large"}, cloudCredentialSecretName="cred")
        job = await harness.job()
        order = await harness.order()
        data = await harness.data(names.provision("m"))
        credentials = await harness.data(names.credential_secret("m"))
        role = await harness.engine.get(ROLES, harness.namespace, names.provision("m"))

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


async def test_machine_with_user_data_becomes_ready_when_agent_connects(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine()
        await harness.succeed(await harness.job(), BY_USER_DATA)
        waiting = await harness.says("WaitingForAgent")
        await harness.settled()
        assert await harness.left() == ["secrets m-machine-state"], "what the Job needed goes before the agent calls"
        assert "provisioned" not in waiting["status"].get("initialization", {})
        assert waiting["spec"]["providerID"] == "probe:///z/i-7"

        await harness.connect()
        found = await harness.ready()

    assert found["status"]["addresses"] == [
        {"type": "InternalIP", "address": "10.0.0.7"},
        {"type": "Hostname", "address": "m"},
    ]
    assert found["status"]["failureDomain"] == "z"


async def test_ready_condition_names_each_unmet_precondition(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster(provisioned=False)
        await harness.machine(bootstrapped=False)
        found = await harness.says("WaitingForInfrastructure")
        assert f"Cluster {harness.namespace}/c" in condition(found, "Ready")["message"]

        await harness.provision_cluster()
        found = await harness.says("WaitingForBootstrapData")
        assert "RKEBootstrap" in condition(found, "Ready")["message"]
        assert not found["metadata"].get("finalizers"), "nothing was asked for yet"

        await harness.bootstrap()
        await harness.job()


async def test_missing_credential_is_named_in_condition(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine(cloudCredentialSecretName="nowhere")
        found = await harness.says("CredentialNotFound")
        assert f"{harness.namespace}/nowhere" in condition(found, "Ready")["message"]
        assert await harness.jobs() == []


async def test_credential_from_tenant_credential_namespace_is_used(harness: DriverMachineHarness) -> None:
    place = f"{harness.namespace}-credentials"
    await harness.engine.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud"}, "stringData": {"token": "t0ken"}}
    await harness.engine.create(SECRETS, place, secret)
    async with harness.running():
        await harness.cluster()
        await harness.machine(cloudCredentialSecretName=f"{place}:cloud")
        await harness.job()
        assert await harness.data(names.credential_secret("m")) == {"token": b"t0ken"}


async def test_credential_of_any_other_namespace_is_not_read(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine(cloudCredentialSecretName="kube-system:admin")
        found = await harness.says("BadCredentialReference")
        assert "cattle-global-data" in condition(found, "Ready")["message"]
        assert await harness.jobs() == []


async def test_paused_machine_creates_no_job_and_sets_paused_condition(harness: DriverMachineHarness) -> None:
    async with harness.running():
        await harness.cluster(paused=True)
        await harness.machine()
        await harness.says("Paused", type="Paused")
        await harness.settled()
        assert await harness.jobs() == []

        await harness.engine.patch(CLUSTER.target, harness.namespace, "c", {"spec": {"paused": False}})
        await harness.job()


async def test_idle_machines_write_nothing(harness: DriverMachineHarness) -> None:
    async with harness.running() as manager:
        await harness.cluster()
        for name in ("a", "b"):
            await harness.machine(name)
        for name in ("a", "b"):
            await harness.succeed(await harness.job(name))
            await harness.ready(name)
        await harness.settled()
    async with harness.running() as manager:
        await harness.settled()
        assert manager.ledger.writes == 0
        await harness.engine.patch(CLUSTER.target, harness.namespace, "c", {"metadata": {"labels": {"x": "y"}}})
        await harness.settled()
        assert manager.ledger.writes == 0


async def test_failed_machine_waiting_for_retry_writes_nothing(harness: DriverMachineHarness) -> None:
    async with harness.running(PATIENT):
        await harness.cluster()
        await harness.machine()
        await harness.fail(await harness.job())
        await harness.says("CreateError")
        await harness.settled()
    async with harness.running(PATIENT) as manager:
        await harness.says("CreateError")
        await harness.settled()
        before = manager.ledger.writes
        manager.controllers["probemachine"].enqueue(Key(harness.namespace, "m"))
        await harness.settled()
        assert manager.ledger.writes == before


async def test_options_of_a_server_cannot_change(harness: DriverMachineHarness) -> None:
    await harness.cluster()
    await harness.machine(options={"size": "large", "namespace": "here", "tags": ["a"]})
    changes = ({"size": "small"}, {"size": None}, {"disk": 3}, {"namespace": "there"}, {"tags": ["b"]})
    for change in changes:
        with pytest.raises(StatusError, match="immutable"):
            await harness.engine.patch(KIND.target, harness.namespace, "m", {"spec": change})
    await harness.engine.patch(KIND.target, harness.namespace, "m", {"spec": {"common": {"labels": {"a": "b"}}}})
    await harness.engine.patch(KIND.target, harness.namespace, "m", {"spec": {"providerID": "probe://x"}})


async def test_moved_machine_gets_no_second_server(harness: DriverMachineHarness) -> None:
    """`clusterctl move` brings spec, annotations and Secrets, and no status."""
    async with harness.running():
        await harness.cluster()
        made = await harness.machine()
        await harness.succeed(await harness.job(), State(phase="bootstrapped", id="i-1", provider_id="probe://i-1"))
        await harness.ready()
        await harness.settled()
    identity = f"{harness.namespace}/m/{made['metadata']['uid']}"
    await harness.engine.status(KIND.target, harness.namespace, "m", dict.fromkeys(_STATUS))

    async with harness.running():
        found = await harness.ready()
        await harness.settled()
        assert await harness.jobs() == []
    assert found["metadata"]["annotations"][job_spec.IDENTITY] == identity


_STATUS = ("conditions", "ready", "initialization", "jobName", "addresses", "failures", "countedJob")


async def test_local_driver_requires_embedded_job_runner(harness: DriverMachineHarness) -> None:
    async with harness.running(found=msgspec.structs.replace(FOUND, local=True), run_jobs=False):
        await harness.cluster()
        await harness.machine()
        await harness.says("NeedsJobRunner")
        assert [named(job) for job in await harness.jobs()] == []


async def test_server_is_not_created_when_server_url_is_loopback(harness: DriverMachineHarness) -> None:
    found = msgspec.structs.replace(FOUND, own_loopback=True)
    async with harness.running(found=found, only_here="https://127.0.0.1:6443"):
        await harness.cluster()
        await harness.machine()
        said = condition(await harness.says("ServerUrlOnlyHere"), "Ready")["message"]
        assert "cannot reach the manager at https://127.0.0.1:6443" in said
        assert "--server-url" in said
        assert [named(job) for job in await harness.jobs()] == []
    async with harness.running(found=found):
        await harness.job()


async def test_kubernetes_job_has_image_limits_and_no_managed_by(harness: DriverMachineHarness) -> None:
    async with harness.running(run_jobs=False, image="registry.example/remuda:1", cpu="500m"):
        await harness.cluster()
        await harness.machine()
        job = await harness.job()
        pod = job["spec"]["template"]["spec"]
        assert "managedBy" not in job["spec"]
        assert pod["containers"][0]["image"] == "registry.example/remuda:1"
        assert pod["containers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi"}
        assert pod["securityContext"]["runAsNonRoot"] is True
        await harness.settled()

        await harness.delete()
        remove = await harness.job(removes=True)
        assert remove["metadata"]["uid"] != job["metadata"]["uid"]
