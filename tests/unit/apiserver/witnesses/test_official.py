"""The official `kubernetes` client: typed, dynamic, its watch and its leader election."""

from __future__ import annotations

import base64
from typing import Any

import kubernetes as k8s
import pytest
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

from tests.lab import Ours
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.apiserver.witnesses.conftest import GROUP


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"herd": "north"}}, "data": data}


def test_official_client_round_trips_config_map(core: k8s.client.CoreV1Api, space: str) -> None:
    made = core.create_namespaced_config_map(space, config_map("one", key="value"))
    assert all((made.metadata.resource_version, made.metadata.uid, made.metadata.creation_timestamp))
    read = core.read_namespaced_config_map("one", space)
    assert read.to_dict() == made.to_dict()
    read.data["key"] = "other"
    replaced = core.replace_namespaced_config_map("one", space, read)
    assert int(replaced.metadata.resource_version) > int(made.metadata.resource_version)
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_config_map("one", space, read)
    assert (stale.value.status, stale.value.reason) == (409, "Conflict")
    assert "the object has been modified" in stale.value.body
    ended: Any = core.delete_namespaced_config_map("one", space)
    assert (ended["status"] if isinstance(ended, dict) else ended.status) == "Success"
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("one", space)
    assert (gone.value.status, gone.value.reason) == (404, "Not Found")


def test_official_client_round_trips_secret_bytes(core: k8s.client.CoreV1Api, space: str) -> None:
    raw = bytes(range(256))
    body = k8s.client.V1Secret(
        metadata=k8s.client.V1ObjectMeta(name="bytes"),
        data={"raw": base64.b64encode(raw).decode()},
        string_data={"text": "plain"},
    )
    core.create_namespaced_secret(space, body)
    read = core.read_namespaced_secret("bytes", space)
    assert base64.b64decode(read.data["raw"]) == raw
    assert base64.b64decode(read.data["text"]) == b"plain"
    assert read.type == "Opaque"
    assert read.string_data is None


def test_paginated_list_returns_each_item_once(core: k8s.client.CoreV1Api, space: str) -> None:
    for number in range(7):
        core.create_namespaced_config_map(space, config_map(f"page-{number}"))
    names, token, revisions, remaining = [], None, set(), []
    while True:
        page = core.list_namespaced_config_map(space, limit=3, _continue=token, label_selector="herd=north")
        names += [item.metadata.name for item in page.items]
        revisions.add(page.metadata.resource_version)
        remaining.append(page.metadata.remaining_item_count)
        token = page.metadata._continue
        if not token:
            break
        core.create_namespaced_config_map(space, config_map(f"page-{len(names)}-late"))
    assert names == [f"page-{number}" for number in range(7)]
    assert len(revisions) == 1
    with pytest.raises(ApiException) as bad:
        core.list_namespaced_config_map(space, limit=3, _continue="nonsense")
    assert bad.value.status == 400


def test_json_and_merge_patches_work_with_official_client(core: k8s.client.CoreV1Api, space: str) -> None:
    core.create_namespaced_config_map(space, config_map("patched", a="1", b="2"))
    operations = [{"op": "replace", "path": "/data/a", "value": "9"}, {"op": "remove", "path": "/data/b"}]
    assert core.patch_namespaced_config_map("patched", space, operations).data == {"a": "9"}
    merged = core.patch_namespaced_config_map("patched", space, {"data": {"c": "3", "a": None}})
    assert merged.data == {"c": "3"}
    with pytest.raises(ApiException) as failed:
        core.patch_namespaced_config_map("patched", space, [{"op": "test", "path": "/data/c", "value": "x"}])
    assert (failed.value.status, failed.value.reason) == (422, "Unprocessable Entity")


def test_server_side_apply_conflicts_and_force_work_with_official_client(
    core: k8s.client.CoreV1Api, space: str
) -> None:
    def apply(manager: str, value: str, **options: Any) -> Any:
        return core.patch_namespaced_config_map(
            "applied",
            space,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"key": value}},
            field_manager=manager,
            _content_type="application/apply-patch+yaml",
            **options,
        )

    first = apply("anna", "1")
    assert [(m.manager, m.operation) for m in first.metadata.managed_fields] == [("anna", "Apply")]
    again = apply("anna", "1")
    assert again.metadata.resource_version == first.metadata.resource_version
    with pytest.raises(ApiException) as conflict:
        apply("ben", "2")
    assert conflict.value.status == 409
    assert 'conflict with \\"anna\\": .data.key' in conflict.value.body
    forced = apply("ben", "2", force=True)
    assert forced.data == {"key": "2"}
    assert [m.manager for m in forced.metadata.managed_fields] == ["ben"]


def test_watch_resumes_from_last_resource_version(core: k8s.client.CoreV1Api, space: str) -> None:
    start = core.list_namespaced_config_map(space).metadata.resource_version
    core.create_namespaced_config_map(space, config_map("seen"))
    core.patch_namespaced_config_map("seen", space, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("seen", space)
    watch = k8s.watch.Watch()
    listing = core.list_namespaced_config_map
    seen = []
    for event in watch.stream(listing, space, resource_version=start, timeout_seconds=int(LIMIT_SECONDS)):
        seen.append((event["type"], event["object"].metadata.resource_version))
        if len(seen) == 3:
            watch.stop()
    assert [type_ for type_, _ in seen] == ["ADDED", "MODIFIED", "DELETED"]
    revisions = [int(revision) for _, revision in seen]
    assert revisions == sorted(set(revisions))
    rest = k8s.watch.Watch().stream(listing, space, resource_version=seen[1][1], timeout_seconds=1)
    assert [event["type"] for event in rest] == ["DELETED"]


def test_deployment_is_defaulted_scaled_and_patched_with_official_client(api: k8s.client.ApiClient, space: str) -> None:
    apps = k8s.client.AppsV1Api(api)
    labels = {"app": "web"}
    deployment = k8s.client.V1Deployment(
        metadata=k8s.client.V1ObjectMeta(name="web"),
        spec=k8s.client.V1DeploymentSpec(
            selector=k8s.client.V1LabelSelector(match_labels=labels),
            template=k8s.client.V1PodTemplateSpec(
                metadata=k8s.client.V1ObjectMeta(labels=labels),
                spec=k8s.client.V1PodSpec(containers=[k8s.client.V1Container(name="web", image="web:1")]),
            ),
        ),
    )
    made = apps.create_namespaced_deployment(space, deployment)
    assert (made.spec.replicas, made.spec.strategy.type, made.metadata.generation) == (1, "RollingUpdate", 1)
    assert made.spec.template.spec.containers[0].image_pull_policy == "IfNotPresent"
    scaled = apps.patch_namespaced_deployment_scale("web", space, {"spec": {"replicas": 3}})
    assert (scaled.spec.replicas, scaled.status.replicas, scaled.status.selector) == (3, 0, "app=web")
    assert apps.read_namespaced_deployment("web", space).metadata.generation == 2
    status = {"status": {"observedGeneration": 2, "replicas": 3}}
    assert apps.patch_namespaced_deployment_status("web", space, status).metadata.generation == 2
    merge = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    merged = apps.patch_namespaced_deployment("web", space, merge)  # strategic: by name
    assert [c.name for c in merged.spec.template.spec.containers] == ["side", "web"]
    deployment.spec.selector.match_labels = {"app": "other"}
    with pytest.raises(ApiException) as invalid:
        apps.replace_namespaced_deployment("web", space, deployment)
    assert invalid.value.status == 422
    assert "field is immutable" in invalid.value.body


def test_job_gets_selector_and_defaults(api: k8s.client.ApiClient, space: str) -> None:
    batch = k8s.client.BatchV1Api(api)
    pod = {"restartPolicy": "Never", "containers": [{"name": "work", "image": "work:1"}]}
    job = batch.create_namespaced_job(space, {"metadata": {"name": "once"}, "spec": {"template": {"spec": pod}}})
    assert job.spec.selector.match_labels == {"batch.kubernetes.io/controller-uid": job.metadata.uid}
    assert job.spec.template.metadata.labels["batch.kubernetes.io/job-name"] == "once"
    assert (job.spec.parallelism, job.spec.completions, job.spec.backoff_limit) == (1, 1, 6)


def test_rbac_changes_take_effect_immediately(
    api: k8s.client.ApiClient, core: k8s.client.CoreV1Api, space: str
) -> None:
    rbac = k8s.client.RbacAuthorizationV1Api(api)
    core.create_namespaced_service_account(space, {"metadata": {"name": "reader"}})
    request = k8s.client.AuthenticationV1TokenRequest(
        spec=k8s.client.V1TokenRequestSpec(audiences=[], expiration_seconds=600)
    )
    issued = core.create_namespaced_service_account_token("reader", space, request)
    assert issued.status.expiration_timestamp.tzinfo is not None
    reader = k8s.client.CoreV1Api(_with_token(api, issued.status.token))
    with pytest.raises(ApiException) as refused:
        reader.list_namespaced_config_map(space)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    assert f'User \\"system:serviceaccount:{space}:reader\\" cannot list' in refused.value.body
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    rbac.create_namespaced_role(space, {"metadata": {"name": "read"}, "rules": rules})
    binding = {
        "metadata": {"name": "read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": space}],
    }
    rbac.create_namespaced_role_binding(space, binding)
    assert reader.list_namespaced_config_map(space).items == []
    core.delete_namespaced_service_account("reader", space)
    with pytest.raises(ApiException) as unknown:
        reader.list_namespaced_config_map(space)
    assert (unknown.value.status, unknown.value.reason) == (401, "Unauthorized")


def _with_token(api: k8s.client.ApiClient, token: str) -> k8s.client.ApiClient:
    configuration = k8s.client.Configuration()
    configuration.host = api.configuration.host
    configuration.ssl_ca_cert = api.configuration.ssl_ca_cert
    configuration.api_key = {"authorization": f"Bearer {token}"}
    return k8s.client.ApiClient(configuration)


def test_eviction_respects_pod_disruption_budget(
    api: k8s.client.ApiClient, core: k8s.client.CoreV1Api, space: str
) -> None:
    pod = {
        "metadata": {"name": "guarded", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    }
    core.create_namespaced_pod(space, pod)
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    core.patch_namespaced_pod_status("guarded", space, {"status": running})
    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    k8s.client.PolicyV1Api(api).create_namespaced_pod_disruption_budget(space, budget)
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_eviction("guarded", space, {"metadata": {"name": "guarded", "namespace": space}})
    assert (refused.value.status, refused.value.reason) == (429, "Too Many Requests")
    k8s.client.PolicyV1Api(api).delete_namespaced_pod_disruption_budget("all", space)
    core.create_namespaced_pod_eviction("guarded", space, {"metadata": {"name": "guarded", "namespace": space}})
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_pod("guarded", space)
    assert gone.value.status == 404


def test_leader_election_grants_lock_to_a_single_candidate(
    server: Ours, core: k8s.client.CoreV1Api, space: str
) -> None:
    k8s.config.load_kube_config(str(server.kubeconfig))  # the lock uses the default client
    anna, ben = (_candidate(space, name) for name in ("anna", "ben"))
    assert anna.try_acquire_or_renew() is True
    assert anna.try_acquire_or_renew() is True
    assert ben.try_acquire_or_renew() is False
    lock = core.read_namespaced_config_map("lock", space)
    assert '"anna"' in lock.metadata.annotations["control-plane.alpha.kubernetes.io/leader"]


def _candidate(space: str, name: str) -> leaderelection.LeaderElection:
    lock = ConfigMapLock("lock", space, name)
    return leaderelection.LeaderElection(electionconfig.Config(lock, 5, 4, 1, lambda: None, None))


# -- the official client, dynamic ----------------------------------------------------------------------------------


def test_dynamic_client_discovers_and_applies_custom_resource(
    api: k8s.client.ApiClient, horses: str, space: str
) -> None:
    dynamic = DynamicClient(api)
    kind = dynamic.resources.get(api_version=f"{GROUP}/v1", kind="Horse")
    assert (kind.name, kind.namespaced, kind.short_names) == (horses, True, ["ho"])
    assert "status" in kind.subresources
    bess = {"apiVersion": f"{GROUP}/v1", "kind": "Horse", "metadata": {"name": "bess"}}
    made = kind.create({**bess, "spec": {"unknown": 1}}, namespace=space)
    assert made.spec.to_dict() == {"legs": 4}
    applied = kind.server_side_apply({**bess, "spec": {"tags": ["a"]}}, namespace=space, field_manager="witness")
    assert applied.spec.to_dict() == {"legs": 4, "tags": ["a"]}
    with pytest.raises(k8s.dynamic.exceptions.UnprocessibleEntityError) as invalid:
        kind.patch({"spec": {"legs": 2}}, name="bess", namespace=space, content_type="application/merge-patch+json")
    assert "spec.legs in body should be greater than or equal to 3" in str(invalid.value)
    events = kind.watch(namespace=space, timeout=1)
    assert [(e["type"], e["object"].metadata.name) for e in events] == [("ADDED", "bess")]
    kind.status.patch(
        {"status": {"phase": "Grazing"}, "spec": {"legs": 7}},
        name="bess",
        namespace=space,
        content_type="application/merge-patch+json",
    )
    read = kind.get(name="bess", namespace=space)
    assert (read.status.phase, read.spec.legs) == ("Grazing", 4)
    kind.delete(name="bess", namespace=space)
    with pytest.raises(k8s.dynamic.exceptions.NotFoundError):
        kind.get(name="bess", namespace=space)


def test_custom_objects_api_creates_lists_and_deletes(api: k8s.client.ApiClient, horses: str, space: str) -> None:
    custom = k8s.client.CustomObjectsApi(api)
    place = (GROUP, "v1", space, horses)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Horse", "metadata": {"generateName": "foal-"}, "spec": {}}
    made = [custom.create_namespaced_custom_object(*place, body) for _ in range(3)]
    assert len({foal["metadata"]["name"] for foal in made}) == 3
    listed = custom.list_namespaced_custom_object(*place)
    assert listed["kind"] == "HorseList"
    assert len(listed["items"]) == 3
    custom.delete_collection_namespaced_custom_object(*place)
    assert custom.list_namespaced_custom_object(*place)["items"] == []
    with pytest.raises(ApiException) as wrong:
        custom.create_namespaced_custom_object(*place, {**body, "kind": "Cow"})
    assert wrong.value.status == 422
    assert "must be Horse" in wrong.value.body


def test_official_client_loads_kubeconfig(server: Ours) -> None:
    contexts, active = k8s.config.list_kube_config_contexts(str(server.kubeconfig))
    assert [context["name"] for context in contexts] == [active["name"]]
