"""Defaults and checks of the core group, table by table."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from remuda.apiserver.kinds.core_namespaces import NAME_LABEL
from remuda.apiserver.kinds.core_pods import qos_class

from .writing import POD, TEMPLATE, changed, complaints, created, defaulted, given, kind, updated

SECRET, CONFIG_MAP, NAMESPACE = kind("Secret"), kind("ConfigMap"), kind("Namespace")
PODS, NODE, SERVICE = kind("Pod"), kind("Node"), kind("Service")
VOLUME, CLAIM = kind("PersistentVolume"), kind("PersistentVolumeClaim")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# -- secrets and config maps ------------------------------------------------------------------------------------------


def test_secret_string_data_is_merged_into_data() -> None:
    secret = defaulted(SECRET, data={"a": b64("old"), "b": b64("kept")}, stringData={"a": "new"})
    assert secret["data"] == {"a": b64("new"), "b": b64("kept")}
    assert "stringData" not in secret
    assert secret["type"] == "Opaque"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"data": {"bad key": b64("x")}},
            'data[bad key]: Invalid value: "bad key": a valid config key must consist of',
        ),
        ({"data": {"a": "A" * 4 * 400_000}}, "data: Too long: may not be more than 1048576 bytes"),
        ({"type": "kubernetes.io/tls"}, "data[tls.crt]: Required value"),
        ({"type": "kubernetes.io/basic-auth"}, "data[username]: Required value"),
        ({"type": "kubernetes.io/ssh-auth"}, "data[ssh-privatekey]: Required value"),
        ({"type": "kubernetes.io/dockerconfigjson"}, "data[.dockerconfigjson]: Required value"),
        (
            {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": b64("hidden")}},
            'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"',
        ),
        (
            {"type": "kubernetes.io/service-account-token"},
            "metadata.annotations[kubernetes.io/service-account.name]: Required value",
        ),
    ],
)
def test_invalid_secret_is_rejected_without_leaking_content(fields: dict[str, Any], expected: str) -> None:
    found = complaints(SECRET, **fields)
    assert found
    assert found[0].startswith(expected)
    assert b64("hidden") not in str(found)


def test_secret_type_is_immutable() -> None:
    old = created(SECRET)
    _, found = updated(SECRET, old, changed(old, "type", "other"))
    assert found == ['type: Invalid value: "other": field is immutable']


@pytest.mark.parametrize("resource", [SECRET, CONFIG_MAP], ids=["secret", "configmap"])
def test_immutable_secret_and_config_map_data_cannot_change(resource: Any) -> None:
    old = created(resource, data={"a": "YQ=="}, immutable=True)
    _, found = updated(resource, old, changed(changed(old, "data", {"a": "Yg=="}), "immutable", None))
    assert found == [
        "immutable: Forbidden: field is immutable when `immutable` is set",
        "data: Forbidden: field is immutable when `immutable` is set",
    ]
    assert updated(resource, old, changed(old, "metadata.labels", {"x": "y"}))[1] == []


def test_invalid_config_map_keys_are_rejected() -> None:
    found = complaints(CONFIG_MAP, data={"a": "x"}, binaryData={"a": "YQ=="})
    assert found == ['data[a]: Invalid value: "a": duplicate of key present in binaryData']
    assert complaints(CONFIG_MAP, data={"..": "x"})[0].startswith('data[..]: Invalid value: ".."')
    assert complaints(CONFIG_MAP, data={"a": "é" * 600_000}) == ["[]: Too long: may not be more than 1048576 bytes"]


# -- namespaces -------------------------------------------------------------------------------------------------------


def test_new_namespace_gets_name_label_finalizer_and_active_phase() -> None:
    namespace = created(NAMESPACE, metadata={"labels": {NAME_LABEL: "forged"}}, status={"phase": "Terminating"})
    assert namespace["metadata"]["labels"] == {NAME_LABEL: "it"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}


def test_namespace_update_keeps_spec_finalizers() -> None:
    old = created(NAMESPACE)
    new, found = updated(NAMESPACE, old, changed(old, "spec", {"finalizers": []}))
    assert (new["spec"], found) == ({"finalizers": ["kubernetes"]}, [])


def test_namespace_phase_follows_deletion_timestamp() -> None:
    namespace = created(NAMESPACE)
    assert NAMESPACE.behaviour.is_held(namespace)
    early = changed(namespace, "status.phase", "Terminating")
    found = NAMESPACE.behaviour.validate_status(early, namespace)
    assert [e.detail for e in found] == ["may only be 'Active' if `deletionTimestamp` is empty"]
    NAMESPACE.behaviour.prepare_delete(namespace)
    assert namespace["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in namespace["metadata"]
    assert NAMESPACE.behaviour.validate_status(namespace, namespace) == []


def test_namespace_name_must_be_a_dns_label() -> None:
    validate_name = NAMESPACE.behaviour.validate_name
    assert validate_name is not None
    assert validate_name("a.b", False)
    assert not validate_name("a-b", False)


# -- pods -------------------------------------------------------------------------------------------------------------


def test_new_pod_gets_defaults_and_pending_status() -> None:
    pod = created(PODS, spec={**POD, "serviceAccount": "robot", "volumes": [{"name": "v"}]}, status={"phase": "Failed"})
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["securityContext"] == {}
    assert spec["enableServiceLinks"] is True
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "robot"
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    container = spec["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["resources"] == {}
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"podIP": "a"}, {"podIP": "a", "podIPs": [{"ip": "a"}]}),
        ({"podIPs": [{"ip": "a"}, {"ip": "b"}]}, {"podIP": "a", "podIPs": [{"ip": "a"}, {"ip": "b"}]}),
        ({"podIP": "c", "podIPs": [{"ip": "a"}, {"ip": "b"}]}, {"podIP": "c", "podIPs": [{"ip": "c"}]}),
    ],
)
def test_pod_ip_and_pod_ips_are_kept_in_sync(status: Any, expected: Any) -> None:
    assert defaulted(PODS, spec=POD, status=status)["status"] == expected


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("", "IfNotPresent"),
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
    ],
)
def test_image_pull_policy_default_depends_on_tag(image: str, policy: str) -> None:
    pod = defaulted(PODS, spec={"containers": [{"name": "c", "image": image}]})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_requests_default_from_limits_in_pods_but_not_in_templates() -> None:
    container = {"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    spec = {"containers": [{**container, "ports": [{"containerPort": 80}]}], "hostNetwork": True}
    found = defaulted(PODS, spec=spec)["spec"]["containers"][0]
    assert found["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert found["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    template = defaulted(kind("PodTemplate"), template={"spec": {"containers": [container]}})
    assert "requests" not in template["template"]["spec"]["containers"][0]["resources"]
    assert "enableServiceLinks" not in template["template"]["spec"]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}], "Guaranteed"),
        ([{"limits": {"cpu": "2", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1"}}, {}], "Burstable"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
    ],
)
def test_qos_class_depends_on_requests_and_limits(resources: list[Any], expected: str) -> None:
    assert qos_class({"containers": [{"resources": r} for r in resources]}) == expected


BAD_PODS: list[tuple[str, Any, str]] = [
    ("spec.containers", [], "spec.containers: Required value"),
    ("spec.containers.0.name", None, "spec.containers[0].name: Required value"),
    ("spec.containers.0.name", "A_b", 'spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label'),
    ("spec.containers.0.image", None, "spec.containers[0].image: Required value"),
    ("spec.containers", [*POD["containers"], *POD["containers"]], 'spec.containers[1].name: Duplicate value: "main"'),
    ("spec.initContainers", POD["containers"], 'spec.initContainers[0].name: Duplicate value: "main"'),
    (
        "spec.restartPolicy",
        "Sometimes",
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
    ),
    ("spec.dnsPolicy", "x", 'spec.dnsPolicy: Unsupported value: "x": supported values: "ClusterFirstWithHostNet"'),
    ("spec.containers.0.imagePullPolicy", "x", 'spec.containers[0].imagePullPolicy: Unsupported value: "x"'),
    ("spec.containers.0.ports", [{}], "spec.containers[0].ports[0].containerPort: Required value"),
    (
        "spec.containers.0.ports",
        [{"containerPort": 70000}],
        "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    (
        "spec.containers.0.ports",
        [{"containerPort": 1, "protocol": "tcp"}],
        'spec.containers[0].ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"',
    ),
    (
        "spec.containers.0.ports",
        [{"containerPort": 1, "name": "UPPER"}],
        'spec.containers[0].ports[0].name: Invalid value: "UPPER": must contain only alpha-numeric characters',
    ),
    ("spec.containers.0.env", [{"value": "x"}], "spec.containers[0].env[0].name: Required value"),
    ("spec.containers.0.env", [{"name": "a=b"}], 'spec.containers[0].env[0].name: Invalid value: "a=b"'),
    (
        "spec.containers.0.env",
        [{"name": "a", "valueFrom": {}}],
        'spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`',
    ),
    (
        "spec.containers.0.env",
        [{"name": "a", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        'spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
    ),
    (
        "spec.containers.0.volumeMounts",
        [{"name": "nope", "mountPath": "/x"}],
        'spec.containers[0].volumeMounts[0].name: Not found: "nope"',
    ),
    (
        "spec.containers.0.livenessProbe",
        {"periodSeconds": 3},
        "spec.containers[0].livenessProbe: Required value: must specify a handler type",
    ),
    (
        "spec.containers.0.livenessProbe",
        {"httpGet": {"port": 80}, "exec": {"command": ["x"]}},
        "spec.containers[0].livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
    ),
    (
        "spec.containers.0.resources",
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    ("spec.volumes", [{"name": "v"}, {"name": "v"}], 'spec.volumes[1].name: Duplicate value: "v"'),
    (
        "spec.volumes",
        [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}],
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    ),
    ("spec.nodeSelector", {"a b": "c"}, 'spec.nodeSelector: Invalid value: "a b"'),
    (
        "spec.activeDeadlineSeconds",
        -1,
        "spec.activeDeadlineSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive",
    ),
    (
        "spec.tolerations",
        [{"operator": "Equal"}],
        'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty',
    ),
    (
        "spec.initContainers",
        [{"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["x"]}}}],
        "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without",
    ),
]


@pytest.mark.parametrize(("path", "value", "expected"), BAD_PODS)
def test_invalid_pod_is_rejected(path: str, value: Any, expected: str) -> None:
    pod = changed(given(PODS, spec=POD), path, value)
    PODS.behaviour.default(pod)
    found = [str(e) for e in PODS.behaviour.validate(pod)]
    assert any(text.startswith(expected) for text in found), found


def test_pod_update_may_change_only_mutable_fields() -> None:
    old = created(PODS, spec={**POD, "tolerations": [{"key": "a", "operator": "Exists"}], "activeDeadlineSeconds": 9})
    assert updated(PODS, old, changed(old, "spec.containers.0.image", "other:1"))[1] == []
    assert updated(PODS, old, changed(old, "spec.activeDeadlineSeconds", 5))[1] == []
    more = [*old["spec"]["tolerations"], {"key": "b", "operator": "Exists"}]
    assert updated(PODS, old, changed(old, "spec.tolerations", more))[1] == []
    for path, value, expected in [
        ("spec.nodeName", "n1", "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].im"),
        ("spec.containers.0.command", ["x"], "spec: Forbidden: pod updates may not change fields other than"),
        (
            "spec.containers",
            [*POD["containers"], {"name": "b", "image": "b"}],
            "spec.containers: Forbidden: pod updates",
        ),
        ("spec.tolerations", [], "spec.tolerations: Forbidden: existing toleration can not be modified"),
        ("spec.activeDeadlineSeconds", 10, "spec.activeDeadlineSeconds: Invalid value: 10: must be less than"),
        ("spec.schedulingGates", [{"name": "g"}], "spec.schedulingGates[0].name: Forbidden: only deletion is allowed"),
    ]:
        found = updated(PODS, old, changed(old, path, value))[1]
        assert any(text.startswith(expected) for text in found), (path, found)


@pytest.mark.parametrize(
    ("spec", "status", "asked", "seconds"),
    [
        ({}, {}, None, 0),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, None, 30),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, 5, 5),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 30}, {"phase": "Succeeded"}, None, 0),
        ({"nodeName": "n", "terminationGracePeriodSeconds": -1}, {}, None, 1),
    ],
)
def test_pod_grace_period_depends_on_spec_status_and_request(
    spec: Any, status: Any, asked: int | None, seconds: int
) -> None:
    decide = PODS.behaviour.graceful_seconds
    assert decide is not None
    assert decide({"spec": spec, "status": status}, asked) == seconds


# -- nodes, services, volumes, the rest -------------------------------------------------------------------------------


def test_new_node_keeps_its_status_and_gets_defaults() -> None:
    node = created(NODE, spec={"podCIDR": "10.0.0.0/24"}, status={"capacity": {"cpu": 4}})
    assert node["status"]["allocatable"] == {"cpu": "4"}
    assert node["spec"]["podCIDRs"] == ["10.0.0.0/24"]
    assert NODE.keeps_status_on_create


def test_node_provider_id_is_immutable_and_taints_are_unique() -> None:
    old = created(NODE, spec={"providerID": "aws://1", "podCIDRs": ["10.0.0.0/24"]})
    assert updated(NODE, old, changed(old, "spec.providerID", "aws://2"))[1] == [
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid'
    ]
    assert updated(NODE, old, changed(old, "spec.unschedulable", True))[1] == []
    taints = [{"key": "a", "effect": "NoSchedule"}] * 2
    assert "taints must be unique by key and effect pair" in complaints(NODE, spec={"taints": taints})[0]


def test_new_service_gets_defaults() -> None:
    service = created(SERVICE, spec={"ports": [{"port": 80}, {"port": 81, "name": "b", "targetPort": "http"}]})
    spec = service["spec"]
    assert (spec["type"], spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("ClusterIP", "None", "Cluster")
    assert spec["ports"][0] == {"port": 80, "protocol": "TCP", "targetPort": 80}
    assert spec["ports"][1]["targetPort"] == "http"
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    headless = created(SERVICE, spec={"clusterIP": "None"})["spec"]
    assert (headless["ipFamilies"], headless["ipFamilyPolicy"]) == (["IPv4", "IPv6"], "RequireDualStack")
    selecting = created(SERVICE, spec={"clusterIP": "None", "selector": {"a": "b"}})["spec"]
    assert (selecting["ipFamilies"], selecting["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert "clusterIP" not in spec
    assert service["status"] == {"loadBalancer": {}}
    balancer = created(SERVICE, spec={"type": "LoadBalancer", "ports": [{"port": 1}]})["spec"]
    assert (balancer["allocateLoadBalancerNodePorts"], balancer["externalTrafficPolicy"]) == (True, "Cluster")
    sticky = created(SERVICE, spec={"sessionAffinity": "ClientIP", "ports": [{"port": 1}]})["spec"]
    assert sticky["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "spec.ports: Required value"),
        ({"ports": [{"port": 0}]}, "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ({"ports": [{"port": 1}, {"port": 2}]}, "spec.ports[0].name: Required value"),
        ({"ports": [{"port": 1, "nodePort": 30000}]}, "spec.ports[0].nodePort: Forbidden: may not be used when `type`"),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        ({"type": "Odd", "ports": [{"port": 1}]}, 'spec.type: Unsupported value: "Odd": supported values: "ClusterIP"'),
        ({"type": "NodePort", "clusterIP": "None"}, 'spec.clusterIPs[0]: Invalid value: "None": may not be set to'),
    ],
)
def test_invalid_service_is_rejected(spec: Any, expected: str) -> None:
    found = complaints(SERVICE, spec=spec)
    assert any(text.startswith(expected) for text in found), found


def test_service_cluster_ip_is_kept_and_immutable() -> None:
    old = created(SERVICE, spec={"clusterIP": "10.0.0.7", "ports": [{"port": 80}]})
    assert old["spec"]["clusterIPs"] == ["10.0.0.7"]
    new, found = updated(SERVICE, old, given(SERVICE, spec={"ports": [{"port": 81}]}))
    assert (new["spec"]["clusterIP"], found) == ("10.0.0.7", [])
    moved = changed(changed(old, "spec.clusterIP", "10.0.0.8"), "spec.clusterIPs", ["10.0.0.8"])
    assert updated(SERVICE, old, moved)[1] == [
        'spec.clusterIPs[0]: Invalid value: ["10.0.0.8"]: may not change once set'
    ]


def test_persistent_volumes_and_claims_are_defaulted_and_validated() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    volume = created(VOLUME, spec=spec)
    assert volume["status"]["phase"] == "Pending"
    assert "lastPhaseTransitionTime" in volume["status"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert "spec: Required value: must specify a volume type" in complaints(
        VOLUME, spec={k: v for k, v in spec.items() if k != "hostPath"}
    )
    assert updated(VOLUME, volume, changed(volume, "spec.hostPath.path", "/y"))[1] == [
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"
    ]
    claim = created(CLAIM, spec={"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}})
    assert claim["status"] == {"phase": "Pending"}
    assert updated(CLAIM, claim, changed(claim, "spec.volumeName", "v1"))[1] == []
    assert updated(CLAIM, claim, changed(claim, "spec.accessModes", ["ReadOnlyMany"]))[1][0].startswith(
        "spec: Forbidden: spec is immutable after creation except"
    )
    assert complaints(CLAIM, spec={"accessModes": ["Odd"]})[0].startswith('spec.accessModes: Unsupported value: "Odd"')


def test_replication_controller_selector_defaults_from_template_labels() -> None:
    controller = created(kind("ReplicationController"), spec={"template": TEMPLATE})
    assert controller["spec"]["selector"] == controller["metadata"]["labels"] == {"app": "web"}
    assert controller["spec"]["replicas"] == 1


def test_limit_range_defaults_derive_from_max_and_min() -> None:
    limits = [
        {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}},
        {"type": "Pod", "max": {"cpu": "4"}},
    ]
    found = created(kind("LimitRange"), spec={"limits": limits})["spec"]["limits"]
    assert found[0]["default"] == {"cpu": "2"}
    assert found[0]["defaultRequest"] == {"cpu": "2", "memory": "1Mi"}
    assert "default" not in found[1]
