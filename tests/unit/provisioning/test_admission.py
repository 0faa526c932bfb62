"""Declared clusters that could never come up are refused in words; what is merely unusual gets a warning."""

from __future__ import annotations

import base64
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.kube.admission import AdmissionResult
from remuda.kube.definitions import schema
from remuda.providers.controlplane.admission import FUNCTIONS as CONTROL_PLANE_FUNCTIONS
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.provisioning.admission.cluster import admit
from remuda.provisioning.types import Cluster
from tests.unit.provisioning import schemas
from tests.unit.provisioning.judging import NAMESPACE, Json, World, cluster, pool, refused, review, verdict, warned


def test_minimal_cluster_is_admitted() -> None:
    assert refused(cluster()) == []


def test_custom_cluster_without_pools_is_admitted_without_warnings() -> None:
    obj = cluster()
    obj["spec"]["rkeConfig"] = {}
    assert warned(obj) == []


def as_user(obj: Json, old: Json | None = None, *groups: str) -> AdmissionResult:
    return admit(msgspec.structs.replace(review(obj, old), user="rider", groups=groups))


def created_by(name: str) -> Json:
    obj = cluster()
    obj["metadata"]["annotations"] = {"field.cattle.io/creatorId": name}
    return obj


@pytest.mark.parametrize("obj", [cluster(), created_by("somebody-else")])
def test_creator_annotation_is_set_to_requesting_user(obj: Json) -> None:
    patch = as_user(obj).patch
    assert patch is not None
    assert patch["metadata"]["annotations"]["field.cattle.io/creatorId"] == "rider"


def test_administrator_may_keep_foreign_creator_annotation() -> None:
    assert as_user(created_by("somebody-else"), None, "system:masters").patch is None


def test_creator_annotation_is_immutable() -> None:
    (error,) = as_user(created_by("rider"), created_by("somebody-else")).errors
    assert "cannot be changed" in str(error)
    assert as_user(created_by("somebody-else"), created_by("somebody-else")).errors == ()


def test_null_fields_of_exported_manifests_are_ignored() -> None:
    obj = cluster(pool(taints=None, labels=None, nodeStartupTimeout=None), registries=None, machineSelectorConfig=None)
    obj["spec"] |= {"agentEnvVars": None, "clusterAgentDeploymentCustomization": None}
    assert refused(obj) == []


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"name": "local"}, "metadata.name", "reserved"),
        ({"name": "c-abc12"}, "metadata.name", "reserved"),
        ({"name": "x" * 64}, "metadata.name", "63"),
        ({"version": ""}, "spec.kubernetesVersion", "Required value"),
        ({"version": "v1.36.4"}, "spec.kubernetesVersion", "not a version of a distribution"),
        ({"dataDirectories": {"k8sDistro": "here"}}, "spec.rkeConfig.dataDirectories.k8sDistro", "absolute"),
        ({"etcd": {"snapshotScheduleCron": "x"}}, "spec.rkeConfig.etcd.snapshotScheduleCron", "5 fields"),
        ({"etcdSnapshotCreate": {"generation": 1}}, "spec.rkeConfig.etcdSnapshotCreate", "not supported yet"),
        ({"machineGlobalConfig": {"disable": {"a": 1}}}, "spec.rkeConfig.machineGlobalConfig.disable", "list"),
        ({"machinePoolDefaults": {"hostnameLengthLimit": 5}}, "machinePoolDefaults.hostnameLengthLimit", "between"),
        (
            {"infrastructureRef": {"apiVersion": "x/v1", "kind": "XCluster", "name": "x", "namespace": "else"}},
            "spec.rkeConfig.infrastructureRef.namespace",
            "the Cluster's own",
        ),
        (
            {
                "infrastructureRef": {"apiVersion": "x/v1", "kind": "XCluster", "name": "x"},
                "clusterInfrastructure": {"driver": "process"},
            },
            "spec.rkeConfig.clusterInfrastructure",
            "together with infrastructureRef",
        ),
    ],
)
def test_invalid_cluster_spec_is_rejected(change: dict[str, Any], path: str, words: str) -> None:
    (complaint,) = refused(cluster(**change))
    assert path in complaint.partition(": ")[0]
    assert words in complaint


POOL = "spec.rkeConfig.machinePools[0]"


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"machineConfigRef": None}, f"{POOL}.machineConfigRef", "Required value"),
        ({"machineConfigRef": {"kind": "SimConfig"}}, f"{POOL}.machineConfigRef.name", "Required value"),
        ({"machineConfigRef": {"kind": "SimThing", "name": "x"}}, f"{POOL}.machineConfigRef.kind", "<Driver>Config"),
        (
            {"machineConfigRef": {"kind": "SimConfig", "name": "x", "namespace": "else"}},
            f"{POOL}.machineConfigRef.namespace",
            "the Cluster's own",
        ),
        ({"machineOS": "windows"}, f"{POOL}.machineOS", "Windows is not supported"),
        ({"labels": {"no spaces": "x"}}, f"{POOL}.labels", "name part"),
        ({"taints": [{"key": "a b", "effect": "NoSchedule"}]}, f"{POOL}.taints[0].key", "name part"),
        ({"cloudCredentialSecretName": "kube-system:x"}, f"{POOL}.cloudCredentialSecretName", "cattle-global-data"),
        ({"machineDeploymentLabels": {"a": "b c"}}, f"{POOL}.machineDeploymentLabels", "valid label"),
        ({"machineDeploymentAnnotations": {"a b": "c"}}, f"{POOL}.machineDeploymentAnnotations", "name part"),
        ({"drainBeforeDeleteTimeout": "soon"}, f"{POOL}.drainBeforeDeleteTimeout", "is not a duration"),
        ({"nodeStartupTimeout": "-5m"}, f"{POOL}.nodeStartupTimeout", "negative"),
        ({"unhealthyNodeTimeout": "5"}, f"{POOL}.unhealthyNodeTimeout", "is not a duration"),
        ({"maxUnhealthy": "many"}, f"{POOL}.maxUnhealthy", "percentage"),
        ({"unhealthyRange": "1-3"}, f"{POOL}.unhealthyRange", "[1-3]"),
        ({"unhealthyRange": "[3-1]"}, f"{POOL}.unhealthyRange", "an empty range"),
        ({"rollingUpdate": {"maxSurge": 0}}, f"{POOL}.rollingUpdate", "no machine could be replaced"),
        ({"rollingUpdate": {"maxSurge": "x"}}, f"{POOL}.rollingUpdate.maxSurge", "percentage"),
        ({"hostnameLengthLimit": 64}, f"{POOL}.hostnameLengthLimit", "between 10 and 63"),
        ({"autoscalingMinSize": 1}, f"{POOL}.autoscalingMaxSize", "autoscalingMaxSize, or neither"),
        ({"autoscalingMaxSize": 1}, f"{POOL}.autoscalingMinSize", "autoscalingMaxSize, or neither"),
        ({"autoscalingMinSize": 3, "autoscalingMaxSize": 2}, f"{POOL}.autoscalingMinSize", "autoscalingMaxSize"),
        ({"autoscalingMinSize": 0, "autoscalingMaxSize": 2}, f"{POOL}.autoscalingMinSize", "more than 0"),
        ({"dynamicSchemaSpec": "{"}, f"{POOL}.dynamicSchemaSpec", "JSON"),
        (
            {"userdata": {"inlineUserdata": "#cloud-config"}},
            f"{POOL}.userdata.inlineUserdata",
            "in the driver's Config",
        ),
        ({"name": "Pool"}, f"{POOL}.name", "MachineDeployment"),
        ({"name": "a/b"}, f"{POOL}.name", "label"),
    ],
)
def test_invalid_pool_is_rejected(change: dict[str, Any], path: str, words: str) -> None:
    complaint = refused(cluster(pool(**change) if "name" not in change else {**pool(), **change}))[0]
    assert complaint.startswith(path)
    assert words in complaint


def test_pool_without_a_role_is_refused() -> None:
    idle = pool("idle", etcdRole=False, controlPlaneRole=False, workerRole=False)
    (complaint,) = refused(cluster(pool(), idle))
    assert complaint.startswith("spec.rkeConfig.machinePools[1]: ")
    assert "pool idle has no role" in complaint


def test_pools_with_same_name_are_refused() -> None:
    assert "spec.rkeConfig.machinePools[1].name: Duplicate value" in refused(cluster(pool(), pool()))[0]


@pytest.mark.parametrize("role", ["etcdRole", "controlPlaneRole"])
def test_cluster_without_etcd_or_control_plane_pool_is_rejected(role: str) -> None:
    (complaint,) = refused(cluster(pool(**{role: False})))
    assert f"no pool has {role}: the cluster could never start" in complaint


SERVERS = pool("s", controlPlaneRole=False, workerRole=False)
PLANE = pool("p", etcdRole=False, workerRole=False)


@pytest.mark.parametrize(
    ("pools", "role"),
    [
        ([{**SERVERS, "quantity": 0}, PLANE], "etcd member"),
        ([SERVERS, {**PLANE, "quantity": 0}], "control plane"),
    ],
)
def test_last_machine_of_a_role_cannot_be_scaled_away(pools: list[Json], role: str) -> None:
    for old in (None, cluster(SERVERS, PLANE)):
        (complaint,) = refused(cluster(*pools), old)
        assert complaint.startswith("spec.rkeConfig.machinePools: Forbidden: ")
        assert f"no {role} would be left" in complaint


def test_empty_pool_beside_another_of_its_role_is_admitted() -> None:
    assert refused(cluster(SERVERS, {**SERVERS, "name": "other", "quantity": 0}, PLANE)) == []


def test_last_pool_of_a_role_cannot_be_deleted() -> None:
    old = cluster(SERVERS, PLANE)
    assert "no pool has etcdRole" in refused(cluster(PLANE), old)[0]
    bare = deepcopy(old)
    bare["spec"]["rkeConfig"]["machinePools"] = []
    assert [text.partition("would be left")[0] for text in refused(bare, old)] == [
        "spec.rkeConfig.machinePools: Forbidden: no etcd member ",
        "spec.rkeConfig.machinePools: Forbidden: no control plane ",
    ]


def test_cluster_already_without_servers_can_be_changed() -> None:
    """One from before there was this rule."""
    empty = [{**SERVERS, "quantity": 0}, PLANE]
    assert refused(cluster(*empty, version="v1.36.5+k3s1"), cluster(*empty)) == []


def test_autoscaled_worker_pool_may_scale_to_zero() -> None:
    workers = pool("w", etcdRole=False, controlPlaneRole=False, autoscalingMinSize=0, autoscalingMaxSize=5)
    assert refused(cluster(pool(), workers)) == []


def test_machine_templates_of_other_providers_are_admitted() -> None:
    reference = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "DevMachineTemplate", "name": "x"}
    obj = cluster(pool(machineConfigRef=reference, userdata={"inlineUserdata": "#cloud-config"}))
    assert warned(obj) == []


def test_imported_cluster_is_rejected() -> None:
    obj = cluster()
    del obj["spec"]["rkeConfig"]
    assert "does not import existing clusters" in refused(obj)[0]


# ---- changes ---------------------------------------------------------------------------------------------------------


def machine(name: str, version: str, *, owner: str = "prairie", deployment: str = "", server: bool = True) -> Json:
    labels = {"cluster.x-k8s.io/cluster-name": owner, "cluster.x-k8s.io/deployment-name": deployment}
    if server:
        labels["rke.cattle.io/etcd-role"] = "true"
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "status": {"nodeInfo": {"kubeletVersion": version}} if version else {},
    }


def test_downgrade_error_names_machines_with_newer_version() -> None:
    old, new = cluster(version="v1.36.4+k3s1"), cluster(version="v1.35.1+k3s1")
    world = World(("machines", machine("m-1", "v1.36.4+k3s1")), ("machines", machine("m-2", "", owner="other")))
    (complaint,) = refused(new, old, world)
    assert "Machine m-1 runs v1.36.4+k3s1" in complaint


def test_unused_version_can_be_reverted() -> None:
    world = World(("machines", machine("m-1", "v1.35.1+k3s1")))
    assert refused(cluster(version="v1.35.1+k3s1"), cluster(version="v1.36.99+k3s1"), world) == []


def test_skipped_minor_and_changed_distribution_are_rejected() -> None:
    assert "skips a minor version" in refused(cluster(version="v1.36.1+k3s1"), cluster(version="v1.34.1+k3s1"))[0]
    assert (
        "cannot change the distribution of a cluster from k3s to rke2"
        in refused(cluster(version="v1.36.1+rke2r1"), cluster())[0]
    )


def test_data_directories_are_immutable() -> None:
    assert "cannot be changed" in refused(cluster(dataDirectories={"k8sDistro": "/a"}), cluster())[0]


def test_preexisting_invalid_fields_do_not_block_other_changes() -> None:
    old = cluster(pool(machineOS="windows"))
    new = deepcopy(old)
    new["metadata"]["finalizers"] = ["x"]
    assert refused(new, old) == []
    new["spec"]["rkeConfig"]["machinePools"][0]["quantity"] = 3
    assert refused(new, old) == []


def test_status_updates_are_not_validated() -> None:
    old = cluster()
    told = msgspec.structs.replace(review(cluster(version="nonsense"), old), subresource="status")
    assert admit(told) == AdmissionResult()


# ---- warnings --------------------------------------------------------------------------------------------------------


def registered() -> World:
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "SimConfig"}
    return World(
        ("nodedrivers", {"apiVersion": "management.cattle.io/v3", "metadata": {"name": "sim"}}),
        ("simconfigs", {**config, "metadata": {"name": "all", "namespace": NAMESPACE}}),
        ("secrets", {"apiVersion": "v1", "metadata": {"name": "cc-1", "namespace": "cattle-global-data"}}),
    )


def test_complete_cluster_gets_no_warnings() -> None:
    assert warned(cluster(pool(cloudCredentialSecretName="cattle-global-data:cc-1")), world=registered()) == []


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (cluster(pool(machineConfigRef={"kind": "FogConfig", "name": "x"})), "NodeDriver fog is not registered"),
        (cluster(pool(machineConfigRef={"kind": "SimConfig", "name": "x"})), "no SimConfig fleet-default/x yet"),
        (cluster(pool(cloudCredentialSecretName="cattle-global-data:gone")), "Secret cattle-global-data/gone "),
        (cluster(version="v1.99.0+k3s1"), "is not a release that this manager knows"),
        (cluster(pool(displayName="Pool")), "displayName has no effect"),
        (cluster(pool(quantity=2)), "2 etcd members tolerate no more failures than 1"),
        (cluster(pool(workerRole=False)), "no pool has workerRole"),
    ],
)
def test_missing_reference_or_ineffective_field_is_warned(obj: Json, words: str) -> None:
    (said,) = warned(obj, world=registered())
    assert words in said


def test_role_with_zero_quantity_is_warned() -> None:
    servers = pool(workerRole=False)
    workers = pool(
        "w", etcdRole=False, controlPlaneRole=False, quantity=0, machineConfigRef=servers["machineConfigRef"]
    )
    (said,) = warned(cluster(servers, workers), world=registered())
    assert "the cluster has no worker, because the quantity of pool w is 0" in said


@pytest.mark.parametrize(("used", "present", "left"), [("2", 0, 2), ("3", 0, 1), ("2", 1, None), ("1", 0, None)])
def test_machines_above_quota_are_warned(used: str, present: int, left: int | None) -> None:
    world, count = registered(), "count/machines.cluster.x-k8s.io"
    quota = {"spec": {"hard": {count: "4"}}, "status": {"used": {count: used}}}
    world.add("resourcequotas", {"apiVersion": "v1", "metadata": {"name": "small", "namespace": NAMESPACE}, **quota})
    labels = {"cluster.x-k8s.io/cluster-name": "prairie"}
    for number in range(present):
        metadata = {"name": f"m{number}", "namespace": NAMESPACE, "labels": labels}
        world.add("machines", {"apiVersion": "cluster.x-k8s.io/v1beta2", "metadata": metadata})
    said = warned(cluster(pool(quantity=3)), world=world)
    if left is None:
        assert said == []
    else:
        assert said == [
            "spec.rkeConfig.machinePools: 3 more machines are declared, but ResourceQuota small of namespace "
            f"{NAMESPACE} allows {left} more"
        ]


def test_unchanged_spec_is_not_warned_again() -> None:
    old = cluster(pool(quantity=2))
    assert warned(deepcopy(old), old) == []


# ---- whatever comes --------------------------------------------------------------------------------------------------

CLUSTERS = schemas.of(schema(Cluster)["properties"]["spec"])
PLANES = schemas.of(schema(RKEControlPlane)["properties"]["spec"])
_quick = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


def around(kind: str, spec: Json) -> Json:
    metadata = {"name": "prairie", "namespace": NAMESPACE}
    return {"apiVersion": "x/v1", "kind": kind, "metadata": metadata, "spec": spec}


@_quick
@given(st.data())
def test_schema_valid_clusters_never_crash_admission(data: st.DataObject) -> None:
    new, old = around("Cluster", data.draw(CLUSTERS)), around("Cluster", data.draw(CLUSTERS))
    for before in (None, old, cluster()):
        found = verdict(new, before, registered())
        assert all(error.path for error in found.errors)
        assert all(isinstance(str(error), str) for error in found.errors)


@_quick
@given(st.data())
def test_schema_valid_control_planes_never_crash_admission(data: st.DataObject) -> None:
    (registration,) = CONTROL_PLANE_FUNCTIONS
    new, old = around("RKEControlPlane", data.draw(PLANES)), around("RKEControlPlane", data.draw(PLANES))
    for before in (None, old):
        verdict(new, before, function=registration.function)


@_quick
@given(schemas.ANYTHING)
def test_arbitrary_specs_never_crash_admission(spec: Any) -> None:
    """The engine asks admission before it validates."""
    verdict(around("Cluster", spec))


def test_secrets_of_a_manifest_are_not_repeated() -> None:
    bundle = base64.b64encode(b"swordfish").decode()
    obj = cluster(registries={"configs": {"r": {"caBundle": bundle}}}, additionalManifest="swordfish")
    said = "".join(refused(obj))
    assert said
    assert bundle not in said
    assert "swordfish" not in said
