"""Built-in kinds: what each defaults and refuses on its own."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import Trial, case


def _template(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers, **spec}}


def _apps(t: Trial, plural: str) -> str:
    return f"/apis/apps/v1/namespaces/{t.namespace()}/{plural}"


SELECTOR = {"matchLabels": {"app": "x"}}


@case("kinds")
def deployment_defaults(t: Trial) -> None:
    t.post(
        _apps(t, "deployments"), {"metadata": {"name": "a"}, "spec": {"selector": SELECTOR, "template": _template()}}
    )


@case("kinds")
def deployment_refusals(t: Trial) -> None:
    path = _apps(t, "deployments")
    t.post(path, {"metadata": {"name": "a"}, "spec": {}})
    wrong = {"selector": {"matchLabels": {"app": "y"}}, "template": _template()}
    t.post(path, {"metadata": {"name": "a"}, "spec": wrong})
    t.post(path, {"metadata": {"name": "a"}, "spec": {"selector": {}, "template": _template()}})
    t.post(path, {"metadata": {"name": "a"}, "spec": {"selector": SELECTOR, "template": _template(), "replicas": -1}})


@case("kinds")
def deployment_selectors_stay(t: Trial) -> None:
    path = _apps(t, "deployments")
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": {"selector": SELECTOR, "template": _template()}})
    both = {"app": "x", "more": "y"}
    template = {**_template(), "metadata": {"labels": both}}
    t.patch(f"{path}/a", {"spec": {"selector": {"matchLabels": both}, "template": template}})


@case("kinds")
def replicaset_defaults(t: Trial) -> None:
    t.post(
        _apps(t, "replicasets"), {"metadata": {"name": "a"}, "spec": {"selector": SELECTOR, "template": _template()}}
    )


@case("kinds")
def daemonset_defaults(t: Trial) -> None:
    t.post(_apps(t, "daemonsets"), {"metadata": {"name": "a"}, "spec": {"selector": SELECTOR, "template": _template()}})


@case("kinds")
def statefulset_defaults(t: Trial) -> None:
    spec = {"selector": SELECTOR, "template": _template(), "serviceName": "s"}
    t.post(_apps(t, "statefulsets"), {"metadata": {"name": "a"}, "spec": spec})


@case("kinds")
def controller_revisions(t: Trial) -> None:
    path = _apps(t, "controllerrevisions")
    t.post(path, {"metadata": {"name": "a"}, "data": {"any": [1]}, "revision": 1})
    t.patch(f"{path}/a", {"data": {"any": [2]}})


@case("kinds")
def job_defaults(t: Trial) -> None:
    path = f"/apis/batch/v1/namespaces/{t.namespace()}/jobs"
    t.post(path, {"metadata": {"name": "a"}, "spec": {"template": _template(restartPolicy="Never")}})


@case("kinds")
def job_refusals(t: Trial) -> None:
    path = f"/apis/batch/v1/namespaces/{t.namespace()}/jobs"
    t.post(path, {"metadata": {"name": "a"}, "spec": {"template": _template()}})
    t.post(path, {"metadata": {"name": "a"}, "spec": {"template": _template(restartPolicy="Never"), "parallelism": -1}})
    t.post(
        path, {"metadata": {"name": "a"}, "spec": {"template": _template(restartPolicy="Never"), "selector": SELECTOR}}
    )


@case("kinds")
def job_templates_stay(t: Trial) -> None:
    path = f"/apis/batch/v1/namespaces/{t.namespace()}/jobs"
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": {"template": _template(restartPolicy="Never")}})
    t.patch(f"{path}/a", {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})
    t.patch(f"{path}/a", {"spec": {"parallelism": 3}})
    t.patch(f"{path}/a", {"spec": {"completions": 3}})


@case("kinds")
def job_managed_by(t: Trial) -> None:
    path = f"/apis/batch/v1/namespaces/{t.namespace()}/jobs"
    spec = {"template": _template(restartPolicy="Never"), "managedBy": "lab.dev/runner"}
    t.post(path, {"metadata": {"name": "a"}, "spec": spec})
    t.patch(f"{path}/a", {"spec": {"managedBy": "other.dev/x"}})
    t.patch(f"{path}/a/status", {"status": {"active": 1, "startTime": "2026-01-02T03:04:05Z"}})


def _pods(t: Trial) -> str:
    path = f"/api/v1/namespaces/{t.namespace()}/pods"
    t.until_served(path.replace("/pods", "/serviceaccounts/default"))
    return path


@case("kinds")
def pod_defaults(t: Trial) -> None:
    path = _pods(t)
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
    t.post(path, {"metadata": {"name": "a"}, "spec": spec})


@case("kinds")
def pod_with_more(t: Trial) -> None:
    container = {
        "name": "c",
        "image": "i:1",
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "0.5", "memory": "1.5Gi"}, "limits": {"cpu": 1, "memory": "2048Mi"}},
        "livenessProbe": {"httpGet": {"port": "http", "path": "/"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "v", "configMap": {"name": "x"}}, {"name": "s", "secret": {"secretName": "y"}}],
    }
    t.post(_pods(t), {"metadata": {"name": "a"}, "spec": spec})


@case("kinds")
def pod_refusals(t: Trial) -> None:
    path = _pods(t)
    t.post(path, {"metadata": {"name": "a"}, "spec": {}})
    t.post(path, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "UP", "image": "i"}]}})
    t.post(path, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}})
    two = [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]
    t.post(path, {"metadata": {"name": "a"}, "spec": {"containers": two}})


@case("kinds")
def pod_status_and_deletion(t: Trial) -> None:
    path = _pods(t)
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    condition = {"type": "Ready", "status": "True"}
    t.patch(f"{path}/a/status", {"status": {"phase": "Running", "conditions": [condition]}}, "strategic")
    t.delete(f"{path}/a", {"gracePeriodSeconds": 0})
    t.get(f"{path}/a")


@case("kinds")
def a_scheduled_pod_dies_slowly(t: Trial) -> None:
    path = _pods(t)
    containers = [{"name": "c", "image": "i"}]
    spec = {"automountServiceAccountToken": False, "nodeName": "n", "containers": containers}
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    t.delete(f"{path}/a")
    t.get(f"{path}/a")
    t.delete(f"{path}/a", {"gracePeriodSeconds": 0})
    t.get(f"{path}/a")


@case("kinds")
def evictions_and_budgets(t: Trial) -> None:
    path = _pods(t)
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
    t.quietly("POST", path, {"metadata": {"name": "a", "labels": {"app": "x"}}, "spec": spec})
    budgets = path.replace("/api/v1/", "/apis/policy/v1/").replace("/pods", "/poddisruptionbudgets")
    t.post(budgets, {"metadata": {"name": "b"}, "spec": {"selector": SELECTOR, "minAvailable": 1}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    t.post(f"{path}/a/eviction", eviction, note="pending pods go at once")
    t.get(f"{path}/a")
    t.post(f"{path}/nothing/eviction", {**eviction, "metadata": {"name": "nothing"}})


@case("kinds")
def service_defaults(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/services"
    t.post(path, {"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "selector": {"app": "x"}}})
    t.post(path, {"metadata": {"name": "b"}, "spec": {"type": "ExternalName", "externalName": "x.dev"}})
    t.post(path, {"metadata": {"name": "c"}, "spec": {"clusterIP": "None", "ports": [{"port": 0}]}})
    t.post(path, {"metadata": {"name": "1c"}, "spec": {"clusterIP": "None"}})


@case("kinds")
def node_defaults(t: Trial) -> None:
    t.post("/api/v1/nodes", {"metadata": {"name": t.name()}})
    t.patch(f"/api/v1/nodes/{t.name()}", {"spec": {"providerID": "lab://1"}})
    t.patch(f"/api/v1/nodes/{t.name()}", {"spec": {"providerID": "lab://2"}})
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    capacity = {"cpu": "4", "memory": "8Gi"}
    t.patch(f"/api/v1/nodes/{t.name()}/status", {"status": {"addresses": addresses, "capacity": capacity}}, "strategic")
    t.patch(f"/api/v1/nodes/{t.name()}", {"spec": {"unschedulable": True}})


@case("kinds")
def volumes_and_claims(t: Trial) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
    }
    t.post("/api/v1/persistentvolumes", {"metadata": {"name": t.name()}, "spec": spec})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    path = f"/api/v1/namespaces/{t.namespace()}/persistentvolumeclaims"
    t.post(path, {"metadata": {"name": "a"}, "spec": claim})
    t.delete(f"/api/v1/persistentvolumes/{t.name()}")


@case("kinds")
def volume_attachments(t: Trial) -> None:
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    spec = {"attacher": "lab.dev", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    t.post(path, {"metadata": {"name": t.name()}, "spec": spec})
    t.patch(f"{path}/{t.name()}", {"spec": {"nodeName": "m"}})
    t.patch(f"{path}/{t.name()}/status", {"status": {"attached": True}})
    t.delete(f"{path}/{t.name()}")


@case("kinds")
def leases(t: Trial) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{t.namespace()}/leases"
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.678901Z"}
    t.post(path, {"metadata": {"name": "a"}, "spec": spec})
    t.patch(f"{path}/a", {"spec": {"leaseDurationSeconds": 0}})
    t.patch(f"{path}/a", {"spec": {"renewTime": "2026-01-02T03:04:05Z", "leaseTransitions": 1}})
    t.patch(f"{path}/a", {"spec": {"renewTime": "soon"}})


@case("kinds")
def events_in_both_groups(t: Trial) -> None:
    namespace = t.namespace()
    core = f"/api/v1/namespaces/{namespace}/events"
    other = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    involved = {"kind": "ConfigMap", "namespace": namespace, "name": "x", "apiVersion": "v1"}
    body = {"metadata": {"name": "a"}, "involvedObject": involved, "reason": "Why", "message": "m", "type": "Normal"}
    t.post(core, {**body, "source": {"component": "lab"}, "count": 1})
    t.get(f"{other}/a")
    t.post(core, {**body, "metadata": {"name": "b"}, "involvedObject": {**involved, "namespace": "elsewhere"}})
    modern = {
        "metadata": {"name": "c"},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "reportingController": "lab.dev/c",
        "reportingInstance": "i",
        "action": "Do",
        "reason": "Because",
        "regarding": involved,
        "type": "Normal",
        "note": "n",
    }
    t.post(other, modern)
    t.get(f"{core}/c")
    t.post(other, {**modern, "metadata": {"name": "d"}, "action": ""})


@case("kinds")
def events_by_field(t: Trial) -> None:
    namespace = t.namespace()
    path = f"/api/v1/namespaces/{namespace}/events"
    for name, kind in (("a", "Pod"), ("b", "Node")):
        involved = {"kind": kind, "namespace": namespace, "name": name}
        t.quietly("POST", path, {"metadata": {"name": name}, "involvedObject": involved, "type": "Normal"})
    for selector in ("involvedObject.kind=Pod", "involvedObject.name!=a", "type=Normal", "reason=x"):
        body = t.quietly("GET", path, query={"fieldSelector": selector})
        t.note([selector, [item["metadata"]["name"] for item in body["items"]]])


@case("kinds")
def service_accounts(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/serviceaccounts"
    t.post(path, {"metadata": {"name": "a"}, "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "p"}]})
    t.patch(f"{path}/a", {"secrets": [{"name": "t"}]}, "strategic")
    t.post(path, {"metadata": {"name": "BAD"}})


@case("kinds")
def quantities_are_canonical(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/persistentvolumeclaims"
    sizes = (
        "1024Mi",
        "1.5Gi",
        "1000",
        "0.5",
        "1e3",
        "1.500",
        "100m",
        "+5",
        "1000Ki",
        "12e6",
        "0.1n",
        "007",
        "1.",
        "9Ei",
    )
    for index, size in enumerate(sizes):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        reply = t.server.http("POST", path, {"metadata": {"name": f"c{index}"}, "spec": spec})
        stored = reply.body.get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
        t.note([size, reply.code, stored])
    for size in ("abc", "1GiB", "1 Gi", "", "--1", "1ee3"):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        t.post(path, {"metadata": {"name": "x"}, "spec": spec}, note=size)


@case("kinds")
def secret_types(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/secrets"
    t.post(path, {"metadata": {"name": "a"}, "type": "kubernetes.io/tls", "data": {}})
    t.post(path, {"metadata": {"name": "b"}, "type": "kubernetes.io/basic-auth", "stringData": {"username": "u"}})
    t.post(
        path,
        {"metadata": {"name": "c"}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}},
    )
    t.post(path, {"metadata": {"name": "d"}, "type": "kubernetes.io/ssh-auth"})
    t.post(path, {"metadata": {"name": "e"}, "type": "lab.dev/own", "immutable": True})
