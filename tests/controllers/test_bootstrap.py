"""The bootstrap provider on an engine: from a Machine to a host that follows its plan."""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import Callable

import msgspec
import pytest
import pytest_asyncio
import yaml

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.client import Target
from remuda.kube.core import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import StatusError
from remuda.providers.bootstrap import tokens
from remuda.providers.bootstrap.registration import HostRefused
from remuda.providers.bootstrap.setup import BootstrapSettings
from remuda.providers.shared import names
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from tests.controllers.bootstrap_harness import (
    CLOUD_MACHINE,
    TEST_MACHINE,
    BootstrapHarness,
    encoded,
    read,
    text,
    token_in,
)
from tests.controllers.engine import Engine, Json, condition, eventually, is_true

PODS = Target("v1", "pods")


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> BootstrapHarness:
    return await BootstrapHarness.create(engine)


async def refused(attempt: object) -> HostRefused:
    with pytest.raises(HostRefused) as caught:
        await attempt  # type: ignore[misc]
    return caught.value


# the infrastructure of a cluster


async def test_rkecluster_is_provisioned_once_owned_and_sets_no_endpoint(harness: BootstrapHarness) -> None:
    async with harness.running():
        await harness.engine.create(
            RKE_CLUSTER.target,
            harness.namespace,
            {"apiVersion": names.API_VERSION, "kind": "RKECluster", "metadata": {"name": "alone"}},
        )
        alone = await harness.engine.until(
            RKE_CLUSTER.target, harness.namespace, "alone", lambda obj: condition(obj, "Ready").get("status") == "False"
        )
        assert "waiting for an owner: the Cluster that names this object" in condition(alone, "Ready")["message"]
        await harness.cluster()
        await harness.engine.until(
            CLUSTER.target,
            harness.namespace,
            "c",
            lambda obj: obj.get("status", {}).get("initialization", {}).get("infrastructureProvisioned"),
        )
    made = await harness.engine.get(RKE_CLUSTER.target, harness.namespace, "c")
    assert made is not None
    assert made["status"]["initialization"] == {"provisioned": True}
    assert "controlPlaneEndpoint" not in made.get("spec", {})


# what is made


async def test_machine_gets_plan_secret_service_account_and_bootstrap_script(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        bootstrap = await harness.bootstrapped()
        machine = await harness.engine.until(
            MACHINE.target,
            harness.namespace,
            "m",
            lambda obj: obj["spec"]["bootstrap"].get("dataSecretName"),
        )
    assert machine["spec"]["bootstrap"]["dataSecretName"] == names.bootstrap_secret("m")
    assert condition(bootstrap, "AgentConnected")["status"] == "False"
    plan = await harness.plan()
    assert plan["type"] == names.PLAN_TYPE
    assert plan["metadata"]["labels"] == {
        "pool": "a",
        names.WORKER_ROLE: "true",
        names.CLUSTER_NAME: "c",
        names.MACHINE_NAME: "m",
    }
    data = await harness.secret(names.bootstrap_secret("m"))
    assert (data["type"], text(data, "format")) == (names.BOOTSTRAP_TYPE, "script")
    assert text(data, "value").startswith("#!/bin/sh\n")
    assert tokens.parse(token_in(text(data, "value"))).about == harness.key  # type: ignore[union-attr]
    for secret in (plan, data):
        assert secret["metadata"]["labels"][names.CLUSTER_NAME] == "c"
        assert secret["metadata"]["ownerReferences"][0]["uid"] == bootstrap["metadata"]["uid"]
    role = await harness.engine.get(ROLES, harness.namespace, names.plan_secret("m"))
    assert role is not None
    assert [(rule["resources"], rule["resourceNames"]) for rule in role["rules"]] == [
        (["secrets"], [names.plan_secret("m")])
    ]


async def test_registration_token_appears_only_in_bootstrap_script(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        await harness.settled()
    secret = tokens.parse(await harness.token()).secret  # type: ignore[union-attr]
    for target in (SECRETS, RKE_BOOTSTRAP.target, MACHINE.target, SERVICE_ACCOUNTS):
        for obj in await harness.engine.list(target, harness.namespace):
            if obj["metadata"]["name"] == names.bootstrap_secret("m"):
                obj["data"].pop("value")
                obj["metadata"].get("managedFields", []).clear()
            assert secret not in str(obj)
            assert encoded(secret) not in str(obj)


async def test_foreign_infrastructure_gets_cloud_config_merged_with_user_data(harness: BootstrapHarness) -> None:
    userdata = "#cloud-config\npackages: [htop]\nruncmd:\n- [touch, /mine]\n"
    await harness.cluster()
    await harness.machine(infrastructure=CLOUD_MACHINE, userdata=userdata)
    async with harness.running():
        await harness.bootstrapped()
    data = await harness.secret(names.bootstrap_secret("m"))
    assert text(data, "format") == "cloud-config"
    assert text(data, "value").startswith("#cloud-config\n")
    config = yaml.safe_load(text(data, "value"))
    (file,) = config["write_files"]
    script = gzip.decompress(base64.b64decode(file["content"])).decode()
    assert script.startswith("#!/bin/sh\n")
    assert tokens.parse(token_in(script)) is not None
    assert config["runcmd"] == [["sh", file["path"]], ["touch", "/mine"]]
    assert config["packages"] == ["htop"]


async def test_invalid_user_data_sets_stalled_condition(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine(infrastructure=CLOUD_MACHINE, userdata="hostname: x")
    async with harness.running():
        found = await harness.engine.until(
            RKE_BOOTSTRAP.target, harness.namespace, "m", lambda obj: condition(obj, "Ready").get("reason") == "Stalled"
        )
    assert "must begin with #cloud-config" in condition(found, "Ready")["message"]


async def test_ready_condition_names_each_missing_prerequisite(harness: BootstrapHarness) -> None:
    def waits(reason: str) -> Callable[[Json], bool]:
        return lambda obj: condition(obj, "Ready").get("reason") == reason

    await harness.machine()
    alone = {"apiVersion": names.API_VERSION, "kind": "RKEBootstrap", "metadata": {"name": "alone"}}
    await harness.engine.create(RKE_BOOTSTRAP.target, harness.namespace, alone)
    async with harness.running():
        await harness.engine.until(RKE_BOOTSTRAP.target, harness.namespace, "alone", waits("WaitingForMachine"))
        await harness.engine.until(RKE_BOOTSTRAP.target, harness.namespace, "m", waits("WaitingForCluster"))
        await harness.cluster(infrastructure=False)
        found = await harness.engine.until(
            RKE_BOOTSTRAP.target, harness.namespace, "m", waits("WaitingForInfrastructure")
        )
        assert f"the infrastructure of Cluster {harness.namespace}/c" in condition(found, "Ready")["message"]
        assert await harness.engine.get(SECRETS, harness.namespace, names.plan_secret("m")) is None
        await harness.infrastructure()
        await harness.bootstrapped()


async def test_paused_bootstrap_is_not_reconciled(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
    pause: Json = {"metadata": {"annotations": {capi_names.PAUSED: ""}}}
    await harness.engine.patch(RKE_BOOTSTRAP.target, harness.namespace, "m", pause)
    await harness.engine.delete(SECRETS, harness.namespace, names.plan_secret("m"))
    async with harness.running():
        await harness.engine.until(RKE_BOOTSTRAP.target, harness.namespace, "m", lambda obj: is_true(obj, "Paused"))
        await harness.settled()
        assert await harness.engine.get(SECRETS, harness.namespace, names.plan_secret("m")) is None
        await harness.engine.patch(
            RKE_BOOTSTRAP.target, harness.namespace, "m", {"metadata": {"annotations": {capi_names.PAUSED: None}}}
        )
        await harness.engine.until(SECRETS, harness.namespace, names.plan_secret("m"), lambda obj: True)


async def test_connected_host_causes_no_further_writes(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running() as manager:
        await harness.bootstrapped()
        await harness.connect(await harness.token())
        await harness.settled()
        before = manager.ledger.writes
        await harness.engine.patch(
            SECRETS, harness.namespace, names.plan_secret("m"), {"data": {"applied-checksum": encoded("x")}}
        )
        await harness.engine.patch(
            RKE_BOOTSTRAP.target, harness.namespace, "m", {"metadata": {"annotations": {"a": "b"}}}
        )
        await harness.engine.patch(MACHINE.target, harness.namespace, "m", {"metadata": {"annotations": {"a": "b"}}})
        await harness.settled()
    async with harness.running() as again:
        await harness.settled()
        assert (manager.ledger.writes - before, again.ledger.writes) == (0, 0)


async def test_deleted_plan_secret_is_recreated(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        info = await harness.connect(await harness.token())
        old = await harness.plan()
        await harness.engine.delete(SECRETS, harness.namespace, info.secret_name)
        await harness.engine.until(
            SECRETS,
            harness.namespace,
            info.secret_name,
            lambda obj: obj["metadata"]["uid"] != old["metadata"]["uid"],
        )


async def test_machine_deletion_removes_all_bootstrap_objects(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        await harness.connect(await harness.token())
        await harness.engine.delete(MACHINE.target, harness.namespace, "m")
        await harness.engine.gone(MACHINE.target, harness.namespace, "m")
        for target in (SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, RKE_BOOTSTRAP.target, TEST_MACHINE.target):
            await harness.engine.when(
                target,
                harness.namespace,
                lambda objects: all("machine" not in obj["metadata"]["name"] for obj in objects) or None,
            )


# a host registers


async def test_host_exchanges_token_for_working_kubeconfig(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        info = await harness.connect(await harness.token(), "host-1")
        assert (info.namespace, info.secret_name) == (harness.namespace, names.plan_secret("m"))
        config = msgspec.json.decode(info.kube_config)
        assert config["current-context"] == config["clusters"][0]["name"] == config["users"][0]["name"] == "agent"
        bootstrap = await harness.engine.get(RKE_BOOTSTRAP.target, harness.namespace, "m")
        assert bootstrap is not None
        assert is_true(bootstrap, "AgentConnected")
        machine = await harness.engine.get(MACHINE.target, harness.namespace, "m")
        assert machine is not None
        assert machine["metadata"]["labels"][names.MACHINE_ID] == "host-1"
        async with harness.host(info) as host:
            listing = await host.list(
                SECRETS, harness.namespace, field_selector=f"metadata.name={info.secret_name}"
            )  # as the Go agent does
            (secret,) = map(read, listing.items)
            secret["data"] = {"applied-checksum": encoded("sum")}
            await host.update(SECRETS, harness.namespace, info.secret_name, secret)
            await host.patch(SECRETS, harness.namespace, info.secret_name, {"data": {"failure-count": encoded("0")}})
    assert text(await harness.plan(), "applied-checksum") == "sum"


async def test_connect_request_waits_until_account_token_exists(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        token = await harness.token()
    held = asyncio.create_task(harness.connect(token))
    await harness.engine.delete(SECRETS, harness.namespace, f"{names.plan_secret('m')}-token")
    async with harness.running():
        assert (await held).secret_name == names.plan_secret("m")


async def test_repeated_connect_is_answered_for_same_host_and_refused_for_others(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        token = await harness.token()
        first = await harness.connect(token, "host-1")
        assert await harness.connect(token, "host-1") == first
        refusal = await refused(harness.connect(token, "host-2"))
        assert refusal.code == 403
        assert "another host" in refusal.message
        found = await harness.engine.until(
            RKE_BOOTSTRAP.target, harness.namespace, "m", lambda obj: is_true(obj, "TokenMisused")
        )
        assert "host-1" in condition(found, "TokenMisused")["message"]
        assert "host-2" in (await harness.until_event("TokenMisused", "m"))["message"]


async def test_concurrent_use_of_one_token_admits_one_host(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        token = await harness.token()
        results = await asyncio.gather(
            *(harness.connect(token, f"host-{number}") for number in range(6)), return_exceptions=True
        )
    assert [type(one).__name__ for one in results].count("ConnectionInfo") == 1
    assert {one.code for one in results if isinstance(one, HostRefused)} == {403}


async def test_expired_token_is_refused_and_replaced(harness: BootstrapHarness) -> None:
    harness.settings = BootstrapSettings(token_ttl_seconds=4)
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        first = await harness.token()
        data = await harness.secret(names.bootstrap_secret("m"))
        ledger = tokens.read(data["metadata"]["annotations"][tokens.LEDGER])
        await harness.engine.until(
            SECRETS,
            harness.namespace,
            names.bootstrap_secret("m"),
            lambda obj: (
                len(tokens.read(obj["metadata"]["annotations"][tokens.LEDGER]).entries) == 2
                and tokens.judge(ledger, tokens.parse(first), "x") == "expired"  # type: ignore[arg-type]
            ),
        )
        refusal = await refused(harness.connect(first))
        assert refusal.code == 401
        assert await harness.token() != first
        await eventually(lambda: connects(harness))


async def connects(harness: BootstrapHarness) -> bool:
    """Show the newest token: on a slow machine it may expire on the way."""
    try:
        await harness.connect(await harness.token())
    except HostRefused as refusal:
        if refusal.code == 401:
            return False
        raise
    return True


async def test_used_token_is_not_renewed_after_machine_is_provisioned(harness: BootstrapHarness) -> None:
    harness.settings = BootstrapSettings(token_ttl_seconds=60)
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        await harness.connect(await harness.token())
        await harness.engine.status(
            TEST_MACHINE.target, harness.namespace, "m", {"initialization": {"provisioned": True}}
        )
        await harness.engine.patch(TEST_MACHINE.target, harness.namespace, "m", {"spec": {"providerID": "test://m"}})
        await harness.engine.until(
            MACHINE.target,
            harness.namespace,
            "m",
            lambda obj: obj.get("status", {}).get("initialization", {}).get("infrastructureProvisioned"),
        )
        await harness.settled()
        last = await harness.token()
    async with harness.running():
        await harness.settled()
        assert harness.manager.controllers["rkebootstrap"].waits == {}
        assert await harness.token() == last


@pytest.mark.parametrize(
    "token", ["", "x", "machine..", "machine.bS9t.abc", "cluster.bS9t.abc", "machine.!.x", "a" * 9999]
)
async def test_malformed_token_returns_401(harness: BootstrapHarness, token: str) -> None:
    async with harness.running():
        refusal = await refused(harness.connect(token))
        assert (refusal.code, refusal.message) == (401, "unknown or expired token")


async def test_token_of_one_machine_is_refused_for_another(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine("m")
    await harness.machine("n")
    async with harness.running():
        await harness.bootstrapped("m")
        await harness.bootstrapped("n")
        own = tokens.parse(await harness.token("m"))
        other = tokens.parse(await harness.token("n"))
        assert own is not None
        assert other is not None
        forged = tokens.RegistrationToken("machine", other.about, own.secret)
        assert (await refused(harness.connect(forged.text))).code == 401


async def test_cloned_host_id_is_refused_with_conflict(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine("m")
    await harness.machine("n")
    async with harness.running():
        await harness.bootstrapped("m")
        await harness.bootstrapped("n")
        await harness.connect(await harness.token("m"), "host-1")
        refusal = await refused(harness.connect(await harness.token("n"), "host-1"))
        assert refusal.code == 409
        assert f"Machine {harness.namespace}/m has the same id" in refusal.message
        await harness.connect(await harness.token("n"), "host-2")


async def test_token_is_refused_while_its_machine_is_being_deleted(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        token = await harness.token()
    await harness.engine.delete(MACHINE.target, harness.namespace, "m")  # its finalizer holds it: nobody runs
    refusal = await refused(harness.connect(token))
    assert refusal.code == 403
    assert "being deleted" in refusal.message


async def test_missing_or_invalid_host_id_returns_400(harness: BootstrapHarness) -> None:
    async with harness.running():
        for id in ("", "a b", "x" * 64):
            refusal = await refused(harness.connect("machine.bS9t.abc", id))
            assert refusal.code == 400
            assert "X-Cattle-Id" in refusal.message


async def test_host_reads_config_and_version_without_spending_token(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    said = {"x-cattle-id": "host-1", "x-cattle-field": "kubernetesversion"}
    async with harness.running():
        await harness.bootstrapped()
        token = await harness.token()
        assert (await refused(harness.registration.cluster_info(token, said))).code == 404
        assert (await refused(harness.registration.config_yaml(token, said))).code == 404
        await harness.engine.patch(MACHINE.target, harness.namespace, "m", {"spec": {"version": "v1.35.2"}})
        file = {"path": "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", "content": encoded("server: x")}
        plan = msgspec.json.encode({"files": [file]}).decode()
        await harness.engine.patch(
            SECRETS, harness.namespace, names.plan_secret("m"), {"data": {"plan": encoded(plan)}}
        )
        assert await harness.registration.cluster_info(token, said) == "v1.35.2"
        assert await harness.registration.config_yaml(token, said) == "server: x"
        await harness.connect(token, "host-2")  # it was free
        assert (await refused(harness.registration.config_yaml(token, said))).code == 403


async def test_moved_bootstrap_keeps_its_connected_host(harness: BootstrapHarness) -> None:
    """`clusterctl move` takes no status along."""
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        await harness.connect(await harness.token())
    lost: Json = {"conditions": None, "dataSecretName": None, "initialization": None}
    await harness.engine.status(RKE_BOOTSTRAP.target, harness.namespace, "m", lost)
    async with harness.running():
        found = await harness.bootstrapped()
    assert is_true(found, "AgentConnected")
    assert found["status"]["dataSecretName"] == names.bootstrap_secret("m")


async def test_changed_server_url_regenerates_bootstrap_scripts(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        await harness.settled()
    moved = Site(server_url="https://elsewhere.example:8443", ca_pem=harness.site.ca_pem)
    async with harness.running(site=moved):
        await harness.engine.until(
            SECRETS,
            harness.namespace,
            names.bootstrap_secret("m"),
            lambda obj: "elsewhere.example" in text(obj, "value"),
        )


# a hostile node


async def test_agent_kubeconfig_reads_only_its_own_plan_secret(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine("m")
    await harness.machine("n")
    async with harness.running():
        await harness.bootstrapped("m")
        await harness.bootstrapped("n")
        info = await harness.connect(await harness.token("m"))
    own, other = names.plan_secret("m"), names.plan_secret("n")
    here = harness.namespace
    async with harness.host(info) as thief:
        attempts = {
            "list secrets": thief.list(SECRETS, here),
            "list everywhere": thief.list(SECRETS),
            "list by another's name": thief.list(SECRETS, here, field_selector=f"metadata.name={other}"),
            "another plan": thief.get(SECRETS, here, other),
            "its bootstrap data": thief.get(SECRETS, here, names.bootstrap_secret("m")),
            "its account's token": thief.get(SECRETS, here, f"{own}-token"),
            "write another plan": thief.patch(SECRETS, here, other, {"data": {"plan": ""}}),
            "delete its own": thief.delete(SECRETS, here, own),
            "create": thief.create(SECRETS, here, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}}),
            "machines": thief.list(MACHINE.target, here),
            "bootstraps": thief.get(RKE_BOOTSTRAP.target, here, "m"),
            "config maps": thief.list(CONFIG_MAPS, here),
            "pods": thief.list(PODS, here),
            "a new token": thief.create(
                SERVICE_ACCOUNTS,
                here,
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
                name=own,
                subresource="token",
            ),
        }
        for what, attempt in attempts.items():
            with pytest.raises(StatusError) as caught:
                await attempt
            assert caught.value.code == 403, what
        assert read(await thief.get(SECRETS, here, own))["metadata"]["name"] == own


async def test_node_changes_to_its_role_or_plan_are_reverted_and_reported(harness: BootstrapHarness) -> None:
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        info = await harness.connect(await harness.token())
        await harness.engine.patch(
            SECRETS, harness.namespace, info.secret_name, {"data": {"plan": encoded("{}")}}
        )  # by hand, as a user may
        before = await harness.plan()
        async with harness.host(info) as node:
            secret = read(await node.get(SECRETS, harness.namespace, info.secret_name))
            labels = {names.ETCD_ROLE: "true", names.CONTROL_PLANE_ROLE: "true", names.INIT_NODE: "true"}
            secret["metadata"]["labels"] |= labels
            secret["metadata"]["annotations"] = {"rke.cattle.io/join-url": "https://evil.example:9345"}
            secret["data"] |= {"plan": encoded('{"mine": 1}'), "applied-checksum": encoded("sum")}
            await node.update(SECRETS, harness.namespace, info.secret_name, secret)
        after = await harness.plan()
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert "rke.cattle.io/join-url" not in after["metadata"]["annotations"]
        assert (text(after, "plan"), text(after, "applied-checksum")) == ("{}", "sum")
        found = await harness.engine.until(
            RKE_BOOTSTRAP.target, harness.namespace, "m", lambda obj: is_true(obj, "NodeTampered")
        )
        message = condition(found, "NodeTampered")["message"]
        assert names.ETCD_ROLE in message
        assert "data[plan]" in message
        event = await harness.until_event("NodeTampered", "m")
        assert event["type"] == "Warning"


async def test_plan_secret_labels_are_reset_to_machine_labels(harness: BootstrapHarness) -> None:
    """Also where no admission is in force."""
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        name = names.plan_secret("m")
        stray = {names.ETCD_ROLE: "true", names.INIT_NODE: "true", names.WORKER_ROLE: None, "note": "kept"}
        await harness.engine.patch(SECRETS, harness.namespace, name, {"metadata": {"labels": stray}})
        found = await harness.engine.until(
            SECRETS, harness.namespace, name, lambda obj: obj["metadata"]["labels"].get(names.WORKER_ROLE) == "true"
        )
        labels = found["metadata"]["labels"]
        assert (names.ETCD_ROLE in labels, names.INIT_NODE in labels, labels["note"]) == (False, False, "kept")
        await harness.engine.patch(
            MACHINE.target, harness.namespace, "m", {"metadata": {"labels": {names.ETCD_ROLE: "true"}}}
        )
        await harness.engine.until(
            SECRETS, harness.namespace, name, lambda obj: obj["metadata"]["labels"].get(names.ETCD_ROLE) == "true"
        )
