"""A user who may not get a Secret has no server created with it, by whatever object they name it."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.kube.client import Client, Target
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import StatusError
from remuda.kube.objects import Kind
from remuda.providers.shared import author
from remuda.providers.shared.author import AUTHOR
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning.types import CLUSTER
from tests.controllers.driver_machine_harness import KIND, DriverMachineHarness
from tests.controllers.engine import Engine, Json, condition
from tests.controllers.provisioning_harness import CONFIG, SIM_MACHINE, TEMPLATE, ProvisioningHarness, pool
from tests.controllers.tenants import EVERYTHING, acting_as, grant, new_name, revoke

SHARED = "cattle-global-data"
BUT_SECRETS = [
    {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}
    for group in (
        "provisioning.cattle.io",
        "rke.cattle.io",
        "rke-machine.cattle.io",
        "rke-machine-config.cattle.io",
        "cluster.x-k8s.io",
    )
]
READ_SECRETS = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get"]}


def made(kind: Kind[Any], name: str, **content: object) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **content}


def declared(name: str = "mine", **spec: Any) -> Json:
    rke = {"machinePools": [pool()], **spec.pop("rke", {})}
    return made(CLUSTER, name, spec={"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": rke, **spec})


def plane(**spec: Any) -> Json:
    return made(RKE_CONTROL_PLANE, "mine", spec={"kubernetesVersion": "v1.34.1+k3s1", "clusterName": "mine", **spec})


def template(**common: str) -> Json:
    return made(TEMPLATE, "mine", spec={"template": {"spec": {"common": common}}})


def file_source(kind: str) -> Json:
    files = {"name": "cloud", "items": [{"key": "a", "path": "/etc/a"}]}
    return {"machineSelectorFiles": [{"fileSources": [{kind: files}]}]}


REGISTRY = {"registries": {"configs": {"r.example": {"authConfigSecretName": "cloud"}}}}
TLS = {"registries": {"configs": {"r.example": {"tlsSecretName": "cloud"}}}}
S3 = {"etcd": {"s3": {"bucket": "b", "cloudCredentialName": f"{SHARED}:cloud"}}}
REFERENCE = {"apiGroup": SIM_MACHINE.group, "kind": SIM_MACHINE.name, "name": "mine"}
BOOTSTRAP = {"clusterName": "c", "bootstrap": {"dataSecretName": "cloud"}, "infrastructureRef": REFERENCE}
OF_POOL = {"clusterName": "c", "template": {"spec": BOOTSTRAP}}

# The object, the field that names the Secret or ConfigMap, and where that is; {} is the namespace.
NAMING: list[tuple[Kind[Any], Json, str, str]] = [
    (CLUSTER, declared(cloudCredentialSecretName="cloud"), "spec.cloudCredentialSecretName", "secrets {}/cloud"),
    (
        CLUSTER,
        declared(cloudCredentialSecretName=f"{SHARED}:cloud"),
        "spec.cloudCredentialSecretName",
        f"secrets {SHARED}/cloud",
    ),
    (
        CLUSTER,
        declared(rke={"machinePools": [pool(cloudCredentialSecretName="cloud")]}),
        "spec.rkeConfig.machinePools[0].cloudCredentialSecretName",
        "secrets {}/cloud",
    ),
    (
        CLUSTER,
        declared(rke=REGISTRY),
        "spec.rkeConfig.registries.configs[r.example].authConfigSecretName",
        "secrets {}/cloud",
    ),
    (CLUSTER, declared(rke=TLS), "spec.rkeConfig.registries.configs[r.example].tlsSecretName", "secrets {}/cloud"),
    (
        CLUSTER,
        declared(rke=file_source("secret")),
        "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].secret.name",
        "secrets {}/cloud",
    ),
    (CLUSTER, declared(rke=S3), "spec.rkeConfig.etcd.s3.cloudCredentialName", f"secrets {SHARED}/cloud"),
    (RKE_CONTROL_PLANE, plane(**S3), "spec.etcd.s3.cloudCredentialName", f"secrets {SHARED}/cloud"),
    (
        RKE_CONTROL_PLANE,
        plane(**file_source("configMap")),
        "spec.machineSelectorFiles[0].fileSources[0].configMap.name",
        "configmaps {}/cloud",
    ),
    (
        RKE_CLUSTER,
        made(RKE_CLUSTER, "mine", spec={"infrastructure": {"driver": "sim", "cloudCredentialSecretName": "cloud"}}),
        "spec.infrastructure.cloudCredentialSecretName",
        "secrets {}/cloud",
    ),
    (
        TEMPLATE,
        template(cloudCredentialSecretName="cloud"),
        "spec.template.spec.common.cloudCredentialSecretName",
        "secrets {}/cloud",
    ),
    (
        SIM_MACHINE,
        made(SIM_MACHINE, "mine", spec={"common": {"cloudCredentialSecretName": f"{SHARED}:cloud"}}),
        "spec.common.cloudCredentialSecretName",
        f"secrets {SHARED}/cloud",
    ),
    (MACHINE, made(MACHINE, "mine", spec=BOOTSTRAP), "spec.bootstrap.dataSecretName", "secrets {}/cloud"),
    (
        MACHINE_DEPLOYMENT,
        made(MACHINE_DEPLOYMENT, "mine", spec=OF_POOL),
        "spec.template.spec.bootstrap.dataSecretName",
        "secrets {}/cloud",
    ),
]


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    return await ProvisioningHarness.create(engine)


async def denial(client: Client, target: Target, namespace: str, obj: Json) -> str:
    try:
        await client.create(target, namespace, obj, dry_run=True)
    except StatusError as error:
        return error.message.partition("is forbidden: ")[2] or error.message
    return ""


async def refused(call: Any) -> str:
    with pytest.raises(StatusError) as caught:
        await call
    assert caught.value.code == 403, caught.value.message
    return caught.value.message


async def test_naming_secret_without_get_right_is_denied(engine: Engine, harness: ProvisioningHarness) -> None:
    namespace, user = harness.namespace, new_name()
    if await engine.get(NAMESPACES, "", SHARED) is None:
        await engine.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHARED}})
    await grant(engine, namespace, user, "all", BUT_SECRETS)
    async with harness.running(), acting_as(engine, user) as client:
        for kind, obj, field, place in NAMING:
            said = await denial(client, kind.target, namespace, obj)
            expected = f"{field}: you need the right to get {place.format(namespace)}; "
            assert expected in said
        absent = await denial(client, CLUSTER.target, namespace, NAMING[0][1])
        await harness.credential("cloud")
        assert await denial(client, CLUSTER.target, namespace, NAMING[0][1]) == absent, "whether it exists is not told"
        await grant(engine, namespace, user, "read", [READ_SECRETS])
        await grant(engine, SHARED, user, f"read-{user}", [READ_SECRETS])
        for kind, obj, _, _ in NAMING:
            assert await denial(client, kind.target, namespace, obj) == "", obj
        await revoke(engine, SHARED, f"read-{user}")


async def test_write_without_new_credential_needs_no_secret_right(engine: Engine, harness: ProvisioningHarness) -> None:
    namespace, user = harness.namespace, new_name()
    await grant(engine, namespace, user, "all", BUT_SECRETS)
    await harness.credential("cloud")
    await harness.config()
    async with harness.running(), acting_as(engine, user) as client:
        await engine.create(CLUSTER.target, namespace, declared(cloudCredentialSecretName="cloud"))
        scaled = {"spec": {"rkeConfig": {"machinePools": [pool(quantity=3)]}}}
        await client.patch(CLUSTER.target, namespace, "mine", scaled)
        await client.patch(CLUSTER.target, namespace, "mine", {"metadata": {"labels": {"a": "b"}}})
        # Another pool, another Config and other options are all uses of the credential that the user may not get.
        more = {"spec": {"rkeConfig": {"machinePools": [pool(quantity=3), pool("others")]}}}
        assert "you need the right to get secrets" in await refused(
            client.patch(CLUSTER.target, namespace, "mine", more)
        )
        other = pool(machineConfigRef={"kind": "SimConfig", "name": "others"})
        moved = {"spec": {"rkeConfig": {"machinePools": [other]}}}
        assert "you need the right to get secrets" in await refused(
            client.patch(CLUSTER.target, namespace, "mine", moved)
        )
        said = await refused(client.patch(CONFIG.target, namespace, "servers", {"cloud": "evil"}))
        assert f"Cluster {namespace}/mine" in said
        await client.patch(CONFIG.target, namespace, "servers", {"metadata": {"labels": {"a": "b"}}})


async def test_author_of_a_credential_is_recorded_and_cannot_be_forged(
    engine: Engine, harness: ProvisioningHarness
) -> None:
    namespace, alice, bob = harness.namespace, new_name(), new_name()
    await grant(engine, namespace, alice, "alice", [EVERYTHING])
    await grant(engine, namespace, bob, "bob", BUT_SECRETS)
    await harness.credential("cloud")
    await harness.config()

    async def chosen_by(name: str = "mine") -> str:
        found = author.of_object(await engine.get(CLUSTER.target, namespace, name))
        return found.name if found is not None else ""

    def annotated(value: str | None) -> Json:
        return {"metadata": {"annotations": {AUTHOR: value}}}

    async with harness.running(), acting_as(engine, alice) as as_alice, acting_as(engine, bob) as as_bob:
        obj = declared(cloudCredentialSecretName="cloud")
        obj["metadata"]["annotations"] = {AUTHOR: '{"user":"root"}'}
        await as_alice.create(CLUSTER.target, namespace, obj)
        assert await chosen_by() == alice
        await as_bob.patch(CLUSTER.target, namespace, "mine", annotated(None))
        assert await chosen_by() == alice
        await refused(as_bob.patch(CLUSTER.target, namespace, "mine", annotated("me")))
        await grant(engine, namespace, bob, "read", [READ_SECRETS])
        await as_bob.patch(CLUSTER.target, namespace, "mine", annotated("me"))
        assert await chosen_by() == bob
        # Controllers copy the author to what they make.
        by_bob = (await engine.get(CLUSTER.target, namespace, "mine") or {})["metadata"]["annotations"][AUTHOR]
        for target, name in ((RKE_CLUSTER.target, "mine"), (TEMPLATE.target, "")):
            await engine.when(
                target,
                namespace,
                lambda found, name=name: [
                    one
                    for one in found
                    if one["metadata"]["name"].startswith(name or "mine-")
                    and one["metadata"]["annotations"].get(AUTHOR) == by_bob
                ],
            )
        await as_bob.create(CLUSTER.target, namespace, made_without_credential())
        assert await chosen_by("plain") == ""


def made_without_credential() -> Json:
    obj = declared("plain", rke={"machinePools": [pool("plain")]})
    obj["metadata"]["annotations"] = {AUTHOR: '{"user":"root"}'}
    return obj


async def test_cluster_without_author_is_flagged_until_user_takes_over(
    engine: Engine, harness: ProvisioningHarness
) -> None:
    namespace, user = harness.namespace, new_name()
    await grant(engine, namespace, user, "all", [EVERYTHING])
    await harness.credential("cloud")
    await harness.config()
    async with harness.running(), acting_as(engine, user) as client:
        await engine.create(CLUSTER.target, namespace, declared("prairie", cloudCredentialSecretName="cloud"))
        if engine.name == "embedded":  # elsewhere the controllers' user is an administrator, who is recorded

            def flagged(obj: Json) -> bool:
                return condition(obj, "AuthorRecorded").get("reason") == "NoAuthor"

            await engine.until(CLUSTER.target, namespace, "prairie", flagged)
        await client.patch(CLUSTER.target, namespace, "prairie", {"metadata": {"annotations": {AUTHOR: "me"}}})
        await engine.until(
            CLUSTER.target,
            namespace,
            "prairie",
            lambda obj: bool(obj.get("status")) and not condition(obj, "AuthorRecorded"),
        )


# ---- before a server is created ------------------------------------------------------------------------------------


async def test_revoked_author_gets_no_new_server_and_existing_servers_are_removable(engine: Engine) -> None:
    harness, user = await DriverMachineHarness.create(engine), new_name()
    record = {AUTHOR: f'{{"user":"{user}"}}'}
    await harness.cluster()
    await harness.secret("cred", token=b"t0ken")
    async with harness.running():
        await harness.machine(cloudCredentialSecretName="cred")
        job = await harness.job()  # nobody is recorded yet
        await harness.succeed(job)
        await harness.ready()
        await harness.machine("n", bootstrapped=False, cloudCredentialSecretName="cred")
        for name in ("m", "n"):
            await engine.patch(KIND.target, harness.namespace, name, {"metadata": {"annotations": record}})
        await harness.bootstrap("n")
        obj = await harness.says("CredentialForbidden", "n")
        said = condition(obj, "Ready")["message"]
        assert (
            f"{user}, who chose the credential Secret {harness.namespace}/cred, no longer has the right to get it"
            in said
        )
        assert [one["metadata"]["name"] for one in await harness.jobs() if "n-" in one["metadata"]["name"]] == []
        await harness.delete("m")
        await harness.succeed(await harness.job("m", removes=True))
        await harness.gone("m")
        await grant(engine, harness.namespace, user, "read", [READ_SECRETS])
        await harness.annotate("wake", "up", "n")
        await harness.job("n")


async def test_cloned_machine_has_the_author_of_its_template(engine: Engine) -> None:
    harness, user = await DriverMachineHarness.create(engine), new_name()
    target = Target("rke-machine.cattle.io/v1", "probemachinetemplates")
    obj = {
        "apiVersion": target.api_version,
        "kind": "ProbeMachineTemplate",
        "metadata": {"name": "t", "annotations": {AUTHOR: f'{{"user":"{user}"}}'}},
        "spec": {"template": {"spec": {"common": {"cloudCredentialSecretName": "cred"}}}},
    }
    await engine.create(target, harness.namespace, obj)
    await harness.cluster()
    await harness.secret("cred", token=b"t0ken")
    cloned = {"metadata": {"annotations": {AUTHOR: None, capi_names.CLONED_FROM_NAME: "t"}}}
    async with harness.running():
        await harness.machine(bootstrapped=False, cloudCredentialSecretName="cred")
        if engine.name == "embedded":
            await engine.patch(KIND.target, harness.namespace, "m", cloned)
            await harness.bootstrap()
            await harness.says("CredentialForbidden")
            await grant(engine, harness.namespace, user, "all", [EVERYTHING])
            async with acting_as(engine, user) as client:  # who may write machines does not change where one is from
                lost = {"metadata": {"annotations": {capi_names.CLONED_FROM_NAME: "other"}}}
                await client.patch(KIND.target, harness.namespace, "m", lost)
            found = await engine.get(KIND.target, harness.namespace, "m")
            assert (found or {})["metadata"]["annotations"][capi_names.CLONED_FROM_NAME] == "t"
            await harness.job()


async def test_server_without_author_is_created_with_warning_event(engine: Engine) -> None:
    harness = await DriverMachineHarness.create(engine)
    await harness.cluster()
    await harness.secret("cred", token=b"t0ken")
    async with harness.running():
        await harness.machine(cloudCredentialSecretName="cred")
        if engine.name == "embedded":
            (said,) = await harness.events("NoAuthor")
            assert "kubectl annotate KIND NAME remuda.dev/author=me --overwrite" in said
        await harness.job()


async def test_bootstrap_secret_from_foreign_source_is_rejected(engine: Engine) -> None:
    harness = await DriverMachineHarness.create(engine)
    await harness.cluster()
    await harness.secret("others", value=b"secret")
    async with harness.running():
        await harness.machine(bootstrapped=False)
        patch = {"spec": {"bootstrap": {"dataSecretName": "others"}}}
        await engine.patch(MACHINE.target, harness.namespace, "m", patch)
        await harness.says("ForeignBootstrapData")
        assert await harness.jobs() == []
