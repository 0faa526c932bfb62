"""Upstream's kube-controller-manager does the upkeep of our server, with our own switched off."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.auth import pki
from tests.lab import Ours, Server
from tests.lab.controllers import NAME, ControllerManager
from tests.lab.limits import LIMIT_SECONDS

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "managed.example.com"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    ours = Ours("--no-upkeep")
    try:
        _define_mounts(ours)  # before the collector looks around: it looks for new kinds every 30 seconds only
        issued = pki.prepare(ours.data, listen_address="127.0.0.1").issue_client_certificate(NAME)
        folder: Path = tmp_path_factory.mktemp("controller-manager")
        manager = ControllerManager(ours, folder, issued.certificate_pem, issued.key_pem, ours.data / "pki" / "sa.key")
        try:
            yield ours
            assert manager.process.poll() is None, manager.log.read_text()[-2000:]
        finally:
            manager.stop()
    finally:
        ours.stop()


def _define_mounts(server: Server) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"mounts.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "mounts", "singular": "mount", "kind": "Mount"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    assert server.http("POST", DEFINITIONS, definition).code == 201
    eventually(lambda: server.http("GET", f"/apis/{GROUP}/v1/mounts").code == 200)


def eventually(condition: Callable[[], Any], seconds: float = LIMIT_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
    return found


@pytest.fixture
def namespace(server: Server) -> str:
    name = f"managed-{secrets.token_hex(3)}"
    assert server.http("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    return name


def paths(namespace: str, kind: str, name: str = "") -> str:
    root = f"/apis/{GROUP}/v1" if kind == "mounts" else "/api/v1"
    return f"{root}/namespaces/{namespace}/{kind}" + (f"/{name}" if name else "")


def create(server: Server, namespace: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    body = {"metadata": metadata, **more}
    if kind == "mounts":
        body |= {"apiVersion": f"{GROUP}/v1", "kind": "Mount"}
    reply = server.http("POST", paths(namespace, kind), body)
    assert reply.code == 201, reply
    made: dict[str, Any] = reply.body
    return made


def owned_by(owner: dict[str, Any], *, blocks: bool = False) -> dict[str, Any]:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "blockOwnerDeletion": blocks}
    return {"ownerReferences": [{**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]}


def is_gone(server: Server, namespace: str, kind: str, name: str) -> bool:
    return server.http("GET", paths(namespace, kind, name)).code == 404


def delete(server: Server, path: str, policy: str = "Background") -> None:
    assert server.http("DELETE", path, {"propagationPolicy": policy}).code == 200


def release(server: Server, namespace: str, kind: str, name: str) -> None:
    patch = {"Content-Type": "application/merge-patch+json"}
    reply = server.http("PATCH", paths(namespace, kind, name), {"metadata": {"finalizers": None}}, patch)
    assert reply.code == 200, reply


def test_background_deletion_removes_transitive_dependents(server: Server, namespace: str) -> None:
    owner = create(server, namespace, "mounts", "owner")
    child = create(server, namespace, "configmaps", "child", metadata=owned_by(owner))
    create(server, namespace, "secrets", "grandchild", metadata=owned_by(child))
    create(server, namespace, "configmaps", "stranger")
    delete(server, paths(namespace, "mounts", "owner"))
    eventually(lambda: is_gone(server, namespace, "secrets", "grandchild"))
    assert is_gone(server, namespace, "configmaps", "child")
    assert not is_gone(server, namespace, "configmaps", "stranger")


def test_object_with_nonexistent_owner_is_garbage_collected(server: Server, namespace: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody", "uid": secrets.token_hex(8)}}
    create(server, namespace, "configmaps", "lost", metadata=owned_by(owner))
    eventually(lambda: is_gone(server, namespace, "configmaps", "lost"))


def test_foreground_deletion_waits_for_blocking_dependents(server: Server, namespace: str) -> None:
    owner = create(server, namespace, "configmaps", "owner")
    held = {**owned_by(owner, blocks=True), "finalizers": ["example.com/hold"]}
    create(server, namespace, "mounts", "child", metadata=held)
    delete(server, paths(namespace, "configmaps", "owner"), "Foreground")
    child = paths(namespace, "mounts", "child")
    eventually(lambda: "deletionTimestamp" in server.http("GET", child).body["metadata"])
    waiting = server.http("GET", paths(namespace, "configmaps", "owner")).body["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    release(server, namespace, "mounts", "child")
    eventually(lambda: is_gone(server, namespace, "configmaps", "owner"))
    assert is_gone(server, namespace, "mounts", "child")


def test_orphan_deletion_removes_owner_references(server: Server, namespace: str) -> None:
    owner = create(server, namespace, "mounts", "owner")
    create(server, namespace, "configmaps", "child", metadata=owned_by(owner))
    # The collector frees what it knows: an owner deleted before its child reached it would take the child along.
    # It learns of config maps in their order, so it knows the child once it has collected a later one.
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody", "uid": secrets.token_hex(8)}}
    create(server, namespace, "configmaps", "later", metadata=owned_by(nobody))
    eventually(lambda: is_gone(server, namespace, "configmaps", "later"))
    delete(server, paths(namespace, "mounts", "owner"), "Orphan")
    eventually(lambda: is_gone(server, namespace, "mounts", "owner"))
    child = server.http("GET", paths(namespace, "configmaps", "child"))
    assert child.code == 200
    assert "ownerReferences" not in child.body["metadata"]


def test_namespace_is_deleted_after_its_contents(server: Server, namespace: str) -> None:
    create(server, namespace, "configmaps", "plain")
    create(server, namespace, "mounts", "held", metadata={"finalizers": ["example.com/hold"]})
    delete(server, f"/api/v1/namespaces/{namespace}")

    def remaining() -> str:
        conditions = server.http("GET", f"/api/v1/namespaces/{namespace}").body["status"].get("conditions", ())
        return next((c["message"] for c in conditions if c["type"] == "NamespaceFinalizersRemaining"), "")

    assert "example.com/hold in 1 resource instances" in eventually(remaining)
    assert is_gone(server, namespace, "configmaps", "plain")
    late = server.http("POST", paths(namespace, "configmaps"), {"metadata": {"name": "late"}})
    assert (late.code, late.body["reason"]) == (403, "Forbidden")
    release(server, namespace, "mounts", "held")
    # The controller comes back to a namespace that waits after a while of its own choosing.
    eventually(lambda: server.http("GET", f"/api/v1/namespaces/{namespace}").code == 404)


def test_default_service_account_is_recreated(server: Server, namespace: str) -> None:
    account = paths(namespace, "serviceaccounts", "default")
    first = eventually(lambda: (reply := server.http("GET", account)).code == 200 and reply.body)
    delete(server, account)
    again = eventually(lambda: (reply := server.http("GET", account)).code == 200 and reply.body)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


def test_token_secrets_are_filled_and_deleted_with_account(server: Server, namespace: str) -> None:
    create(server, namespace, "serviceaccounts", "groom")
    annotations = {"annotations": {"kubernetes.io/service-account.name": "groom"}}
    create(server, namespace, "secrets", "groom", type="kubernetes.io/service-account-token", metadata=annotations)
    path = paths(namespace, "secrets", "groom")
    data = eventually(lambda: server.http("GET", path).body.get("data"))
    assert set(data) == {"ca.crt", "namespace", "token"}

    review = server.http(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {},
        token=base64.b64decode(data["token"]).decode(),
    )
    assert review.body["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:groom"
    delete(server, paths(namespace, "serviceaccounts", "groom"))
    eventually(lambda: server.http("GET", path).code == 404)


def test_aggregated_roles_follow_selected_roles(server: Server) -> None:
    tag = secrets.token_hex(3)
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    whole = {
        "metadata": {"name": f"whole-{tag}"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": tag}}]},
    }
    part = {"metadata": {"name": f"part-{tag}", "labels": {"part-of": tag}}, "rules": [rule]}
    assert server.http("POST", f"{RBAC}/clusterroles", whole).code == 201
    assert server.http("POST", f"{RBAC}/clusterroles", part).code == 201
    path = f"{RBAC}/clusterroles/whole-{tag}"
    eventually(lambda: server.http("GET", path).body["rules"] == [rule])
    delete(server, f"{RBAC}/clusterroles/part-{tag}")
    eventually(lambda: not server.http("GET", path).body["rules"])


def test_controller_manager_holds_its_leader_lease(server: Server) -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
    assert eventually(lambda: server.http("GET", lease).code == 200)
    assert server.http("GET", lease).body["spec"]["holderIdentity"]
