"""Every field of a provisioning Cluster, and what becomes of it. Its page in docs/reference is made of this table."""

from __future__ import annotations

from remuda.kube.errors import FieldError
from remuda.providers.controlplane.rules import fields
from remuda.providers.controlplane.rules.fields import Table, done, read_only, refused, without_effect
from remuda.providers.shared.types import configuration as c
from remuda.provisioning import types as t

_NOT_LOOKED_AT = without_effect("an object is found by its kind and name")
_NO_AGENT = refused("is not supported: nothing of the manager runs in Pods of the cluster")
_DEPRECATED = without_effect("it is deprecated, and nobody reads it")

CLUSTER: Table = {
    **fields.CONFIGURATION,
    t.ClusterSpec: {
        **done("kubernetesVersion cloudCredentialSecretName rkeConfig agentEnvVars"),
        "localClusterAuthEndpoint": fields.AUTHORISED_ENDPOINT,
        "clusterAgentDeploymentCustomization": _NO_AGENT,
        "fleetAgentDeploymentCustomization": refused("is not supported: there is no Fleet"),
        "webhookDeploymentCustomization": _NO_AGENT,
        "defaultPodSecurityAdmissionConfigurationTemplateName": refused(
            "is not supported: there are no such templates; give the file itself in machineSelectorFiles, "
            "and its path in machineGlobalConfig"
        ),
        "enableNetworkPolicy": refused("is not supported: there are no projects to keep apart"),
        "redeploySystemAgentGeneration": refused("is not supported, and not needed: agents replace themselves"),
        "clusterAPIConfig": refused("is not supported: clusters that others have made are not imported"),
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
        read_only("it is told, not asked for"),
    ),
}

# Annotations of a Cluster that upstream honours and that mean nothing here: whoever sets one is told.
IGNORED_ANNOTATIONS = {
    "provisioning.cattle.io/fleet-workspace-name": "there is no Fleet; the workspace is the namespace",
    "provisioning.cattle.io/externally-managed": "there is no Fleet",
    "provisioning.cattle.io/rke2-prime-enabled": "nodes install what the version names",
    "provisioning.cattle.io/enable-scheduling-customization": "nothing of the manager runs in Pods of the cluster",
    "provisioning.cattle.io/enable-fleet-scheduling-customization": "there is no Fleet",
    "provisioning.cattle.io/allow-dynamic-schema-drop": "a pool's dynamicSchemaSpec may be removed without it",
}


def complaints(cluster: t.Cluster) -> list[FieldError]:
    """Return the errors of fields that are refused, by name."""
    return fields.complaints(CLUSTER, cluster.spec, "spec")


def warnings(cluster: t.Cluster) -> list[str]:
    """Return warnings about fields and annotations that are set and have no effect."""
    annotations = cluster.metadata.annotations
    said = [
        f"metadata.annotations[{name}] does nothing: {why}"
        for name, why in IGNORED_ANNOTATIONS.items()
        if annotations.get(name, "") not in ("", "false")
    ]
    return [*fields.warnings(CLUSTER, cluster.spec, "spec"), *said]
