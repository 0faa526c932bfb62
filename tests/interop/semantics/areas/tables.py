"""What kubectl get shows: tables and metadata-only answers."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.areas.verbs import DEPLOYMENT
from tests.interop.semantics.trial import Trial, case, shared

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
PARTIAL_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}

COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how big"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Names", "type": "string", "jsonPath": ".spec.list[*].name", "priority": 1},
    {"name": "Since", "type": "date", "jsonPath": ".spec.since"},
    {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
    {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio", "format": "double"},
    {"name": "Whole", "type": "string", "jsonPath": ".spec.map"},
    {"name": "First", "type": "string", "jsonPath": ".spec.list[0].name"},
]
shared("columneds", version={"additionalPrinterColumns": COLUMNS})


def _table(t: Trial, path: str, **query: str) -> None:
    """Descriptions are prose and ages pass, so neither is compared."""
    target = path + ("?" + "&".join(f"{key}={value}" for key, value in query.items()) if query else "")
    reply = t.server.http("GET", target, headers=TABLE)
    body = reply.body
    ages = []
    for index, column in enumerate(body.get("columnDefinitions", [])):
        column.pop("description")
        if column["name"] in ("Age", "Created At", "Last Seen", "First Seen"):
            ages.append(index)
    for row in body.get("rows", []):
        for index in ages:
            row["cells"][index] = "<age>"
    t.note([reply.code, reply.headers["Content-Type"], body])


@case("tables")
def of_config_maps(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}})
    _table(t, path)
    _table(t, f"{path}/a")
    _table(t, path, includeObject="None")
    _table(t, path, includeObject="Object")
    _table(t, path, includeObject="Everything")


@case("tables")
def of_nothing(t: Trial) -> None:
    _table(t, t.configmaps())


@case("tables")
def of_an_error(t: Trial) -> None:
    path = t.configmaps()
    t.get(f"{path}/nothing", headers=TABLE)


@case("tables")
def of_a_page(t: Trial) -> None:
    path = t.configmaps()
    for name in ("a", "b"):
        t.quietly("POST", path, {"metadata": {"name": name}})
    _table(t, path, limit="1")


@case("tables")
def of_deployments(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments"
    t.quietly("POST", path, DEPLOYMENT)
    _table(t, path)


@case("tables")
def of_secrets(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/secrets"
    t.quietly("POST", path, {"metadata": {"name": "a"}, "stringData": {"k": "v"}})
    _table(t, path)


@case("tables")
def of_namespaces(t: Trial) -> None:
    _table(t, f"/api/v1/namespaces/{t.namespace()}")


@case("tables")
def of_service_accounts(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/serviceaccounts"
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    _table(t, f"{path}/a")


@case("tables")
def of_leases(t: Trial) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{t.namespace()}/leases"
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})
    _table(t, path)


@case("tables")
def of_roles_and_bindings(t: Trial) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{t.namespace()}"
    t.quietly("POST", f"{path}/roles", {"metadata": {"name": "a"}, "rules": []})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    subjects = [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]
    t.quietly("POST", f"{path}/rolebindings", {"metadata": {"name": "a"}, "roleRef": reference, "subjects": subjects})
    row = t.server.http("GET", f"{path}/roles/a", headers=TABLE).body
    t.note([[column["name"] for column in row["columnDefinitions"]], row["rows"][0]["cells"][0]])
    _table(t, f"{path}/rolebindings/a")


@case("tables")
def of_services(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/services"
    spec = {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"name": "a", "port": 80}]}
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    _table(t, path)


@case("tables")
def of_nodes(t: Trial) -> None:
    t.quietly("POST", "/api/v1/nodes", {"metadata": {"name": t.name("node")}})
    _table(t, f"/api/v1/nodes/{t.name('node')}")


@case("tables")
def of_pods(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/pods"
    t.until_served(path.replace("/pods", "/serviceaccounts/default"))
    spec = {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    _table(t, path)


@case("tables")
def of_jobs(t: Trial) -> None:
    path = f"/apis/batch/v1/namespaces/{t.namespace()}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    t.quietly("POST", path, {"metadata": {"name": "a"}, "spec": {"template": template}})
    _table(t, path)


@case("tables")
def of_definitions(t: Trial) -> None:
    t.crd("columneds")
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/columneds.{t.group()}"
    body = t.server.http("GET", path, headers=TABLE).body
    t.note([[column["name"] for column in body["columnDefinitions"]], body["rows"][0]["cells"][0]])


@case("tables")
def of_custom_columns(t: Trial) -> None:
    path = t.crd("columneds")
    full: dict[str, Any] = {
        "size": 5,
        "list": [{"name": "x"}, {"name": "y"}],
        "since": "2026-01-02T03:04:05Z",
        "on": True,
        "ratio": 0.5,
        "map": {"a": 1},
    }
    status = {"conditions": [{"type": "Other", "status": "No"}, {"type": "Ready", "status": "Yes"}]}
    t.quietly("POST", path, t.custom("columneds", spec=full, status=status))
    t.quietly("POST", path, t.custom("columneds", "bare"))
    t.quietly("POST", path, t.custom("columneds", "wrong", spec={"size": "big", "on": "x", "list": "no", "ratio": "r"}))
    for name in (t.name(), t.name("bare"), t.name("wrong")):
        body = t.server.http("GET", f"{path}/{name}", headers=TABLE).body
        columns = body["columnDefinitions"]
        cells = list(body["rows"][0]["cells"])
        since = [column["name"] for column in columns].index("Since")
        cells[since] = "<since>" if cells[since] else cells[since]
        t.note([columns[1:], cells])


@case("tables")
def of_custom_resources_without_columns(t: Trial) -> None:
    path = t.crd("plains")
    t.quietly("POST", path, t.custom("plains"))
    body = t.server.http("GET", f"{path}/{t.name()}", headers=TABLE).body
    t.note([[column["name"] for column in body["columnDefinitions"]], body["rows"][0]["cells"][:1]])


@case("tables")
def tables_or_json(t: Trial) -> None:
    path = t.configmaps()
    accept = f"{TABLE['Accept']},{TABLE['Accept'].replace('v1', 'v1beta1')},application/json"
    reply = t.server.http("GET", path, headers={"Accept": accept})
    t.note([reply.code, reply.headers["Content-Type"], reply.body["kind"], reply.body["apiVersion"]])


@case("tables")
def metadata_only(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}})
    t.get(f"{path}/a", headers=PARTIAL)
    t.get(path, headers=PARTIAL_LIST)
    t.get(path, headers=PARTIAL)
    t.get(f"{path}/a", headers=PARTIAL_LIST)


@case("tables")
def metadata_only_of_a_custom_resource(t: Trial) -> None:
    path = t.crd("plains")
    t.quietly("POST", path, t.custom("plains", spec={"a": 1}))
    t.get(f"{path}/{t.name()}", headers=PARTIAL)


@case("tables")
def metadata_only_of_a_write(t: Trial) -> None:
    path = t.configmaps()
    t.post(
        path, {"metadata": {"name": "a"}, "data": {"k": "v"}}, headers={**PARTIAL, "Content-Type": "application/json"}
    )
    t.patch(f"{path}/a", {"metadata": {"labels": {"x": "1"}}}, headers=PARTIAL)
