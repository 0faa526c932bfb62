"""What an object of a built-in kind has before anybody has set anything.

Built-in kinds are typed on the real server, and a typed object is never quite empty: structs that are not pointers
stand in it as `{}`, fields that are always written as null, zero or an empty string. So whoever creates a Deployment
does not own `.spec` itself, only what is in it, while the creator of a custom resource does. The table has the stable
versions of the kinds; of any other kind a new object is blank, which is right for every custom resource.
"""

from __future__ import annotations

from typing import Any

_TEMPLATE: dict[str, Any] = {"metadata": {}, "spec": {"containers": None}}

_BLANKS: dict[tuple[str, str], dict[str, Any]] = {
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"): {"metadata": {}, "spec": {}},
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): {"metadata": {}},
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): {"metadata": {}, "spec": {}, "status": {}},
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): {"metadata": {}},
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): {
        "metadata": {},
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None},
    },
    ("apiregistration.k8s.io/v1", "APIService"): {
        "metadata": {},
        "spec": {"groupPriorityMinimum": 0, "versionPriority": 0},
        "status": {},
    },
    ("apps/v1", "ControllerRevision"): {"metadata": {}, "data": None, "revision": 0},
    ("apps/v1", "DaemonSet"): {
        "metadata": {},
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0},
    },
    ("apps/v1", "Deployment"): {
        "metadata": {},
        "spec": {"selector": None, "template": _TEMPLATE, "strategy": {}},
        "status": {},
    },
    ("apps/v1", "ReplicaSet"): {
        "metadata": {},
        "spec": {"selector": None, "template": _TEMPLATE},
        "status": {"replicas": 0},
    },
    ("apps/v1", "StatefulSet"): {
        "metadata": {},
        "spec": {"selector": None, "template": _TEMPLATE, "serviceName": "", "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    },
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {
        "metadata": {},
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"currentReplicas": 0, "desiredReplicas": 0},
    },
    ("autoscaling/v1", "Scale"): {"metadata": {}, "spec": {}, "status": {"replicas": 0}},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "metadata": {},
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    },
    ("batch/v1", "CronJob"): {
        "metadata": {},
        "spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}}},
        "status": {},
    },
    ("batch/v1", "Job"): {"metadata": {}, "spec": {"template": _TEMPLATE}, "status": {}},
    ("certificates.k8s.io/v1", "CertificateSigningRequest"): {
        "metadata": {},
        "spec": {"request": None, "signerName": ""},
        "status": {},
    },
    ("coordination.k8s.io/v1", "Lease"): {"metadata": {}, "spec": {}},
    ("discovery.k8s.io/v1", "EndpointSlice"): {"metadata": {}, "addressType": "", "endpoints": None, "ports": None},
    ("events.k8s.io/v1", "Event"): {
        "metadata": {},
        "eventTime": None,
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    },
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"): {
        "metadata": {},
        "spec": {"priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 0},
        "status": {},
    },
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration"): {
        "metadata": {},
        "spec": {"type": ""},
        "status": {},
    },
    ("networking.k8s.io/v1", "IPAddress"): {"metadata": {}, "spec": {}},
    ("networking.k8s.io/v1", "Ingress"): {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}},
    ("networking.k8s.io/v1", "IngressClass"): {"metadata": {}, "spec": {}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"metadata": {}, "spec": {"podSelector": {}}},
    ("networking.k8s.io/v1", "ServiceCIDR"): {"metadata": {}, "spec": {}, "status": {}},
    ("node.k8s.io/v1", "RuntimeClass"): {"metadata": {}, "handler": ""},
    ("policy/v1", "Eviction"): {"metadata": {}},
    ("policy/v1", "PodDisruptionBudget"): {
        "metadata": {},
        "spec": {},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    },
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {"metadata": {}, "rules": None},
    ("rbac.authorization.k8s.io/v1", "Role"): {"metadata": {}, "rules": None},
    ("resource.k8s.io/v1", "DeviceClass"): {"metadata": {}, "spec": {}},
    ("resource.k8s.io/v1", "ResourceClaim"): {"metadata": {}, "spec": {"devices": {"requests": None}}, "status": {}},
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): {
        "metadata": {},
        "spec": {"metadata": {}, "spec": {"devices": {"requests": None}}},
    },
    ("resource.k8s.io/v1", "ResourceSlice"): {
        "metadata": {},
        "spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}},
    },
    ("scheduling.k8s.io/v1", "PriorityClass"): {"metadata": {}, "value": 0},
    ("storage.k8s.io/v1", "CSIDriver"): {"metadata": {}, "spec": {}},
    ("storage.k8s.io/v1", "CSINode"): {"metadata": {}, "spec": {"drivers": None}},
    ("storage.k8s.io/v1", "CSIStorageCapacity"): {"metadata": {}, "storageClassName": ""},
    ("storage.k8s.io/v1", "StorageClass"): {"metadata": {}, "provisioner": ""},
    ("storage.k8s.io/v1", "VolumeAttachment"): {
        "metadata": {},
        "spec": {"attacher": "", "source": {}, "nodeName": ""},
        "status": {"attached": False},
    },
    ("storage.k8s.io/v1", "VolumeAttributesClass"): {"metadata": {}, "driverName": ""},
    ("v1", "ConfigMap"): {"metadata": {}},
    ("v1", "Endpoints"): {"metadata": {}},
    ("v1", "Event"): {
        "metadata": {},
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    ("v1", "LimitRange"): {"metadata": {}, "spec": {"limits": None}},
    ("v1", "Namespace"): {"metadata": {}, "spec": {}, "status": {}},
    ("v1", "Node"): {
        "metadata": {},
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "",
                "osImage": "",
                "containerRuntimeVersion": "",
                "kubeletVersion": "",
                "kubeProxyVersion": "",
                "operatingSystem": "",
                "architecture": "",
            },
        },
    },
    ("v1", "PersistentVolume"): {"metadata": {}, "spec": {}, "status": {}},
    ("v1", "PersistentVolumeClaim"): {"metadata": {}, "spec": {"resources": {}}, "status": {}},
    ("v1", "Pod"): {"metadata": {}, "spec": {"containers": None}, "status": {}},
    ("v1", "PodTemplate"): {"metadata": {}, "template": _TEMPLATE},
    ("v1", "ReplicationController"): {"metadata": {}, "spec": {}, "status": {"replicas": 0}},
    ("v1", "ResourceQuota"): {"metadata": {}, "spec": {}, "status": {}},
    ("v1", "Secret"): {"metadata": {}},
    ("v1", "Service"): {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}},
    ("v1", "ServiceAccount"): {"metadata": {}},
}
_NOTHING: dict[str, Any] = {}


def blank(api_version: str, kind: str) -> dict[str, Any]:
    """The parts that any object of the kind has. Not to be changed."""
    return _BLANKS.get((api_version, kind), _NOTHING)


def is_typed(api_version: str, kind: str) -> bool:
    """Whether the kind is a built-in one, in which a null is the same as nothing."""
    return (api_version, kind) in _BLANKS


def completed(obj: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The object with the parts that it lacks; itself where it lacks none."""
    out: dict[str, Any] | None = None
    for key, part in parts.items():
        present = obj.get(key, _NOTHING)
        better = part if key not in obj else present
        if isinstance(part, dict) and part and isinstance(present, dict) and key in obj:
            better = completed(present, part)
        if key not in obj or better is not present:
            out = dict(obj) if out is None else out
            out[key] = better
    return obj if out is None else out
