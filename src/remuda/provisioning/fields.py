"""Support for each field of a provisioning Cluster. The page in docs/reference is generated from this table."""

from __future__ import annotations

from remuda.kube.errors import FieldError
from remuda.providers.controlplane.rules import fields
from remuda.providers.controlplane.rules.fields import Table, done, read_only, refused, without_effect
from remuda.providers.shared.types import configuration as c
from remuda.provisioning import types as t

_NOT_LOOKED_AT = without_effect("objects are identified by kind and name")
_NO_AGENT = refused("is not supported: the manager runs no Pods in the cluster")
_DEPRECATED = without_effect("it is deprecated and not used")

CLUSTER: Table = {
    **fields.CONFIGURATION,
    t.ClusterSpec: {
        **done("kubernetesVersion cloudCredentialSecretName rkeConfig agentEnvVars"),
        "localClusterAuthEndpoint": fields.AUTHORISED_ENDPOINT,
        "clusterAgentDeploymentCustomization": _NO_AGENT,
        "fleetAgentDeploymentCustomization": refused("is not supported: Remuda has no Fleet"),
        "webhookDeploymentCustomization": _NO_AGENT,
        "defaultPodSecurityAdmissionConfigurationTemplateName": refused(
            "is not supported: Remuda has no such templates; put the file into machineSelectorFiles, and its path "
            "into machineGlobalConfig"
        ),
        "enableNetworkPolicy": refused("is not supported: Remuda has no projects"),
        "redeploySystemAgentGeneration": refused("is not supported, and not needed: agents update themselves"),
        "clusterAPIConfig": refused("is not supported: Remuda does not import existing clusters"),
        "defaultClusterRoleForProjectMembers": _DEPRECATED,
    },
    t.RKEConfig: {
        **fields.CONFIGURATION[c.Operations],
        **done("machinePools machinePoolDefaults infrastructureRef clusterInfrastructure"),
    },
    t.MachinePool: {
        **done("name machineConfigRef etcdRole controlPlaneRole workerRole quantity labels taints"),
        **done("cloudCredentialSecretName paused drainBeforeDelete drainBeforeDeleteTimeout rollingUpdate"),
        **done("machineDeploymentLabels machineDeploymentAnnotations autoscalingMinSize autoscalingMaxSize"),
        **done("nodeStartupTimeout unhealthyNodeTimeout maxUnhealthy unhealthyRange machineOS"),
        **done("hostnameLengthLimit dynamicSchemaSpec userdata replacement"),
        "displayName": _DEPRECATED,
    },
    t.ObjectReference: {
        **done("apiVersion kind name namespace"),
        "uid": _NOT_LOOKED_AT,
        "resourceVersion": _NOT_LOOKED_AT,
        "fieldPath": _NOT_LOOKED_AT,
    },
    t.PoolRollingUpdate: done("maxUnavailable maxSurge"),
    t.PoolUserData: done("inlineUserdata"),
    t.MachinePoolDefaults: done("hostnameLengthLimit"),
    t.ClusterInfrastructure: done("driver options"),
    t.ClusterStatus: dict.fromkeys(
        (
            "ready",
            "clusterName",
            "fleetWorkspaceName",
            "clientSecretName",
            "agentDeployed",
            "observedGeneration",
            "conditions",
        ),
        read_only("the manager writes it"),
    ),
}

# Annotations of a Cluster that upstream honours and that mean nothing here: whoever sets one is told.
IGNORED_ANNOTATIONS = {
    "provisioning.cattle.io/fleet-workspace-name": "Remuda has no Fleet; the workspace is the namespace",
    "provisioning.cattle.io/externally-managed": "Remuda has no Fleet",
    "provisioning.cattle.io/rke2-prime-enabled": "nodes install the declared version",
    "provisioning.cattle.io/enable-scheduling-customization": "the manager runs no Pods in the cluster",
    "provisioning.cattle.io/enable-fleet-scheduling-customization": "Remuda has no Fleet",
    "provisioning.cattle.io/allow-dynamic-schema-drop": "a pool's dynamicSchemaSpec may be removed without it",
}


def complaints(cluster: t.Cluster) -> list[FieldError]:
    """Return the errors of fields that are refused, by name."""
    return fields.complaints(CLUSTER, cluster.spec, "spec")


def warnings(cluster: t.Cluster) -> list[str]:
    """Return warnings about fields and annotations that are set and have no effect."""
    annotations = cluster.metadata.annotations
    said = [
        f"metadata.annotations[{name}] has no effect: {why}"
        for name, why in IGNORED_ANNOTATIONS.items()
        if annotations.get(name, "") not in ("", "false")
    ]
    return [*fields.warnings(CLUSTER, cluster.spec, "spec"), *said]
