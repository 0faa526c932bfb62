"""Desired state of all objects of one provisioning Cluster. Pure.

Names, labels and hashes are those of Rancher, so that its manifests apply unchanged and tools recognise the objects.
All errors of a declaration are reported at once, with the field names of the user's manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.kube.clock import BadDuration
from remuda.providers.shared import author, names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import INIT_NODE_MACHINE_ID, RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning import ProvisioningError, machine_templates, pools
from remuda.provisioning.machine_templates import Material
from remuda.provisioning.types import IN_PLACE_ONLY, Cluster, MachinePool, ObjectReference

Json = dict[str, Any]

AUTOSCALER_ENABLED = "provisioning.cattle.io/cluster-autoscaler-enabled"
AUTOSCALER_PAUSED = "provisioning.cattle.io/cluster-autoscaler-paused"
DELETE_MISSING = "rke.cattle.io/delete-missing-custom-machines-after"

# What of spec.rkeConfig is not the control plane's.
_NOT_CONFIGURATION = frozenset({"machinePools", "machinePoolDefaults", "infrastructureRef", "clusterInfrastructure"})
_COPIED = ("agentEnvVars", "localClusterAuthEndpoint", "kubernetesVersion")


class CannotBeMade(ProvisioningError):
    """The objects of a Cluster cannot be made; the text says why, for users."""


class DesiredPool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    in_place_only: bool
    autoscaled: bool
    deployment: Json
    template: Json | None  # None: it is somebody else's
    health_check: Json | None

    @property
    def deployment_name(self) -> str:
        return str(self.deployment["metadata"]["name"])

    @property
    def infrastructure(self) -> Json:
        """Return the reference to the pool's infrastructure template."""
        found: Json = self.deployment["spec"]["template"]["spec"]["infrastructureRef"]
        return found


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    cluster: Json
    infrastructure: Json | None  # None: it is somebody else's
    control_plane: Json
    bootstrap_templates: Sequence[Json]
    pools: Sequence[DesiredPool]

    @property
    def objects(self) -> list[Json]:
        """Return the objects in the order of creation: each after its owner and the objects that it refers to."""
        found = [self.cluster, self.infrastructure, self.control_plane, *self.bootstrap_templates]
        found += [pool.template for pool in self.pools]
        found += [pool.deployment for pool in self.pools]
        found += [pool.health_check for pool in self.pools]
        return [obj for obj in found if obj is not None]


def takes_config(pool: MachinePool) -> bool:
    """Return whether the pool's machines come from a driver of ours; otherwise it names another provider's template."""
    reference = pool.machine_config_ref
    return reference is not None and reference.api_version in ("", names.CONFIG_API_VERSION)


def credential(cluster: Cluster, pool: MachinePool) -> str:
    return pool.cloud_credential_secret_name or cluster.spec.cloud_credential_secret_name


def uses_credential(cluster: Cluster) -> bool:
    """Return True if a driver of ours is given a credential for the Cluster."""
    config = cluster.spec.rke_config
    if config is None:
        return False
    shared = config.cluster_infrastructure is not None and cluster.spec.cloud_credential_secret_name
    return bool(shared) or any(takes_config(pool) and credential(cluster, pool) for pool in config.machine_pools)


def complaints(cluster: Cluster) -> list[str]:
    """Return why nothing can be generated from the Cluster, whatever else exists. Admission denies all of it before."""
    config = cluster.spec.rke_config
    if config is None:
        return ["spec.rkeConfig is not set: Remuda does not import existing clusters"]
    found = [] if cluster.spec.kubernetes_version else ["spec.kubernetesVersion is not set"]
    seen: dict[str, str] = {}
    for pool in config.machine_pools:
        here = f"machine pool {pool.name}"
        reference = pool.machine_config_ref
        if not pool.name or reference is None or not reference.kind or not reference.name:
            found.append(f"{here}: name and machineConfigRef (with kind and name) are required")
        elif takes_config(pool) and not reference.kind.endswith("Config"):
            found.append(f"{here}: machineConfigRef.kind {reference.kind} is not a <Driver>Config")
        if not (pool.etcd_role or pool.control_plane_role or pool.worker_role):
            found.append(f"{here}: no role is set: set etcdRole, controlPlaneRole or workerRole")
        deployment = pools.deployment_name(cluster.metadata.name, pool.name)
        if deployment in seen:
            found.append(
                f"{here}: the name of its MachineDeployment, {deployment}, is already used by pool {seen[deployment]}"
            )
        seen[deployment] = pool.name
    return found


def generate(raw: Mapping[str, Any], cluster: Cluster, materials: Mapping[str, Material], management: str) -> Desired:
    """`materials`: by pool, for those that take a Config. `management`: the name of the management Cluster.
    Raises CannotBeMade."""
    found = complaints(cluster)
    if found:
        raise CannotBeMade("; ".join(found))
    config = cluster.spec.rke_config
    assert config is not None
    name = cluster.metadata.name
    desired = []
    for pool in config.machine_pools:
        try:
            desired.append(_pool(cluster, pool, materials.get(pool.name)))
        except (BadDuration, ValueError) as error:
            found.append(f"machine pool {pool.name}: {error}")
    if found:
        raise CannotBeMade("; ".join(found))
    bootstraps = {_bootstrap_name(cluster, pool): pool for pool in config.machine_pools}
    return Desired(
        cluster=_capi_cluster(cluster),
        infrastructure=None if config.infrastructure_ref is not None else _infrastructure(raw, cluster),
        control_plane=_control_plane(raw, cluster, management),
        bootstrap_templates=[_bootstrap_template(name, *each) for each in bootstraps.items()],
        pools=desired,
    )


# ---- per cluster -----------------------------------------------------------------------------------------------------


def _object(api_version: str, kind: str, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Json:
    metadata: Json = {"name": name}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _capi_cluster(cluster: Cluster) -> Json:
    config = cluster.spec.rke_config
    assert config is not None
    name = cluster.metadata.name
    external = config.infrastructure_ref
    spec = {
        "infrastructureRef": _reference(external) if external is not None else _our(RKE_CLUSTER.name, name),
        "controlPlaneRef": _our(RKE_CONTROL_PLANE.name, name),
    }
    made = _object(CAPI_CLUSTER.api_version, CAPI_CLUSTER.name, name, {}, _autoscaler(cluster))
    return {**made, "spec": spec}


def _our(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": names.GROUP, "kind": kind, "name": name}


def _reference(reference: ObjectReference) -> dict[str, str]:
    """Return a reference in the form of Cluster API v1beta2, without a version."""
    group = reference.api_version.rpartition("/")[0]
    return {"apiGroup": group, "kind": reference.kind, "name": reference.name}


def _autoscaler(cluster: Cluster) -> dict[str, str]:
    config = cluster.spec.rke_config
    if config is None or not any(pools.is_autoscaled(pool) for pool in config.machine_pools):
        return {}
    if cluster.metadata.annotations.get(AUTOSCALER_PAUSED) == "true":
        return {AUTOSCALER_PAUSED: "true"}
    return {AUTOSCALER_ENABLED: "true"}


def _infrastructure(raw: Mapping[str, Any], cluster: Cluster) -> Json:
    name = cluster.metadata.name
    missing = cluster.metadata.annotations.get(DELETE_MISSING)
    labels = {capi_names.CLUSTER_NAME: name}
    annotations = {DELETE_MISSING: missing} if missing else {}
    annotations |= author.copied(cluster.metadata.annotations)
    made = _object(RKE_CLUSTER.api_version, RKE_CLUSTER.name, name, labels, annotations)
    asked = raw["spec"]["rkeConfig"].get("clusterInfrastructure")
    if asked:
        credential = cluster.spec.cloud_credential_secret_name
        named = {"cloudCredentialSecretName": credential} if credential else {}
        made["spec"] = {"infrastructure": {**asked, **named}}
    return made


def _control_plane(raw: Mapping[str, Any], cluster: Cluster, management: str) -> Json:
    """Return the RKEControlPlane. It copies the user's configuration verbatim, including unknown fields."""
    name = cluster.metadata.name
    init_node = cluster.metadata.labels.get(INIT_NODE_MACHINE_ID)
    labels = {capi_names.CLUSTER_NAME: name, **({INIT_NODE_MACHINE_ID: init_node} if init_node else {})}
    spec = raw["spec"]
    made = _object(RKE_CONTROL_PLANE.api_version, RKE_CONTROL_PLANE.name, name, labels, {})
    made["spec"] = {
        **{key: value for key, value in spec["rkeConfig"].items() if key not in _NOT_CONFIGURATION},
        **{key: spec[key] for key in _COPIED if key in spec},
        "clusterName": name,
        "managementClusterName": management,
    }
    return made


# ---- per pool --------------------------------------------------------------------------------------------------------


def _pool(cluster: Cluster, pool: MachinePool, material: Material | None) -> DesiredPool:
    config = cluster.spec.rke_config
    assert config is not None
    assert pool.machine_config_ref is not None
    name = cluster.metadata.name
    template = noted = None
    reference = _reference(pool.machine_config_ref)
    if takes_config(pool):
        if material is None:
            raise ValueError(f"{pool.machine_config_ref.kind} {pool.machine_config_ref.name} was not loaded")
        deployment = pools.deployment_name(name, pool.name)
        template = machine_templates.machine_template(name, deployment, pool, credential(cluster, pool), material)
        template["metadata"]["annotations"] |= author.copied(cluster.metadata.annotations)
        noted = machine_templates.note(material.options if material.pinned is None else material.pinned)
        reference = {
            "apiGroup": names.MACHINE_GROUP,
            "kind": template["kind"],
            "name": template["metadata"]["name"],
        }
    made = pools.machine_deployment(
        name,
        pool,
        infrastructure=reference,
        bootstrap=_bootstrap_name(cluster, pool),
        longest_host_name=pool.hostname_length_limit or config.machine_pool_defaults.hostname_length_limit,
        options_note=noted,
    )
    return DesiredPool(
        name=pool.name,
        in_place_only=pool.replacement == IN_PLACE_ONLY,
        autoscaled=pools.is_autoscaled(pool),
        deployment=made,
        template=template,
        health_check=pools.machine_health_check(name, pool),
    )


def _bootstrap_name(cluster: Cluster, pool: MachinePool) -> str:
    """Return the template's name: shared by all our pools, one per pool of other providers, which may set user data."""
    config = cluster.spec.rke_config
    assert config is not None
    name = cluster.metadata.name
    if config.infrastructure_ref is None:
        return names.join(name, "bootstrap", "template")
    deployment = pools.deployment_name(name, pool.name)
    return names.join(deployment, machine_templates.text_digest(deployment + _user_data(pool)))


def _bootstrap_template(cluster: str, name: str, pool: MachinePool) -> Json:
    inline = _user_data(pool)
    userdata = {"userdata": {"inlineUserdata": inline}} if inline else {}
    labels = {names.CLUSTER_NAME: cluster}
    made = _object(RKE_BOOTSTRAP_TEMPLATE.api_version, RKE_BOOTSTRAP_TEMPLATE.name, name, labels, {})
    made["spec"] = {"clusterName": cluster, "template": {"spec": {"clusterName": cluster, **userdata}}}
    return made


def _user_data(pool: MachinePool) -> str:
    return pool.userdata.inline_userdata if pool.userdata is not None else ""
