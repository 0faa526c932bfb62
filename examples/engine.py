"""The first half of the tour: `remuda apiserver` on an empty directory, used over its own API, killed and restarted."""

from __future__ import annotations

from pathlib import Path

from stage import REMUDA, Api, Json, Program, show, step

HORSES: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "horses.ranch.example.com"},
    "spec": {
        "group": "ranch.example.com",
        "scope": "Namespaced",
        "names": {"plural": "horses", "singular": "horse", "kind": "Horse", "shortNames": ["hs"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Coat", "type": "string", "jsonPath": ".spec.coat"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "coat": {"type": "string", "enum": ["bay", "grey", "pinto"]},
                                    "hands": {"type": "integer", "default": 15, "minimum": 1},
                                    "brand": {"type": "string", "maxLength": 20},
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "!has(oldSelf.brand) || self.brand == oldSelf.brand",
                                        "message": "a brand is for life",
                                    }
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}
HERD = "/apis/ranch.example.com/v1/namespaces/default/horses"
APPLY = "application/apply-patch+yaml"
HORSE: Json = {"apiVersion": "ranch.example.com/v1", "kind": "Horse", "metadata": {"name": "dusty"}}


def tour(data_dir: Path) -> None:
    step("1. From nothing to a Kubernetes API")
    server = _start(data_dir)
    api = Api.at(data_dir)
    groups = api.call("GET", "/apis")["groups"]
    show(f"serves Kubernetes {api.call('GET', '/version')['gitVersion']}, {len(groups) + 1} API groups")

    step("2. A kind of your own")
    dusty = _make_a_kind(api)

    step("3. What belongs together goes together")
    owner = {"apiVersion": "ranch.example.com/v1", "kind": "Horse", "name": "dusty", "uid": dusty["metadata"]["uid"]}
    saddle = {"metadata": {"name": "saddle", "ownerReferences": [owner]}, "data": {"leather": "brown"}}
    api.call("POST", "/api/v1/namespaces/default/configmaps", saddle)
    api.call("DELETE", f"{HERD}/dusty")
    api.wait_for("/api/v1/namespaces/default/configmaps/saddle", lambda found: found.get("code") == 404)
    show("deleted horse/dusty; its configmap/saddle followed")

    step("4. Kill -9, and nothing is lost")
    last = "0"
    for n in range(200):
        last = api.call("POST", HERD, {**HORSE, "metadata": {"name": f"mount-{n}"}})["metadata"]["resourceVersion"]
    server.kill()
    server = _start(data_dir)
    found = Api.at(data_dir).call("GET", HERD)
    newest = max(int(item["metadata"]["resourceVersion"]) for item in found["items"])
    if len(found["items"]) != 200 or newest != int(last):
        raise SystemExit(f"lost writes: {len(found['items'])} horses, newest {newest}, expected 200 and {last}")
    show(f"all {len(found['items'])} horses are back, up to revision {newest}")
    show(f"SIGTERM: exit code {server.end()}")


def _start(data_dir: Path) -> Program:
    server = Program(*REMUDA, "apiserver", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0")
    show(server.ready_line)
    return server


def _make_a_kind(api: Api) -> Json:
    api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", HORSES)
    api.wait_for("/apis/ranch.example.com/v1", lambda found: found.get("resources"))
    show("CustomResourceDefinition horses.ranch.example.com established")
    mine, rivals = f"{HERD}/dusty?fieldManager=tour", f"{HERD}/dusty?fieldManager=rival"
    applied = api.call("PATCH", mine, {**HORSE, "spec": {"coat": "bay", "brand": "R"}}, APPLY)
    show(f"server-side apply made horse/dusty; defaulted hands={applied['spec']['hands']}")
    for path, spec, content_type in (
        (mine, {"coat": "plaid"}, APPLY),
        (f"{HERD}/dusty", {"brand": "X"}, "application/merge-patch+json"),
        (rivals, {"coat": "grey"}, APPLY),
    ):
        body = {**HORSE, "spec": spec} if content_type == APPLY else {"spec": spec}
        refused = api.call("PATCH", path, body, content_type)
        show(f"{refused['code']} {refused['reason']}: {refused['message']}")
    return applied
