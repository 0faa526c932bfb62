"""AdmissionReviews, answered."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.server import ApiServer
from remuda.kube.admission import ALLOWED, AdmissionRegistration, AdmissionResult, Review, Unseen
from remuda.kube.authorization import RequiredAccess, Subject
from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from remuda.kube.objects import Kind, Object
from remuda.kube.patches import apply_json_patch, apply_merge_patch
from remuda.runtime.caches import Caches
from remuda.runtime.webhooks.review import Call, Permits, Webhook, answer, join, lookup_in, select_in
from tests.suites.horses import horse, horse_webhook
from tests.unit.runtime.things import CONFIG_MAP, create

GROUP = "ranch.example"
HORSES = horse_webhook(GROUP)


def nothing(*_: str) -> None:
    return None


def review(operation: str, new: Any = None, old: Any = None, **request: Any) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u-1",
                "kind": {"group": GROUP, "version": "v1", "kind": "Horse"},
                "resource": {"group": GROUP, "version": "v1", "resource": "horses"},
                "namespace": "ns",
                "operation": operation,
                "userInfo": {"username": "jane", "groups": ["a"], "uid": "7", "extra": {}},
                "object": new,
                "oldObject": old,
                "dryRun": False,
                **request,
            },
        }
    )


async def only_grey_horses(subject: Subject, access: RequiredAccess) -> bool:
    """Jane may get the Secret of grey horses."""
    return (subject.name, subject.uid, subject.groups) == ("jane", "7", ("a",)) and access.name == "grey"


def ask(call: Call, body: bytes, webhook: Webhook = HORSES, permits: Permits = only_grey_horses) -> dict[str, Any]:
    answered = msgspec.json.decode(asyncio.run(answer(webhook, call, body, nothing, permits=permits)))
    assert (answered["apiVersion"], answered["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = answered["response"]
    assert response.pop("uid") == "u-1"
    return response


def noting(seen: list[Review], verdict: AdmissionResult = ALLOWED) -> Webhook:
    def note(review: Review) -> AdmissionResult:
        seen.append(review)
        return verdict

    return msgspec.structs.replace(HORSES, function=note)


class TestMutating:
    def test_mutating_review_returns_json_patch_with_defaults(self) -> None:
        new = horse(GROUP, "a")
        response = ask("mutate", review("CREATE", new))
        assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")
        patched = apply_json_patch(new, msgspec.json.decode(base64.b64decode(response["patch"])))
        assert patched["spec"] == {"legs": 4}
        assert patched["metadata"] == {"name": "a", "labels": {"a/horse": "a"}}

    def test_mutating_review_without_defaults_returns_no_patch(self) -> None:
        new = horse(GROUP, "a", legs=4)
        new["metadata"]["labels"] = {"a/horse": "a"}
        assert ask("mutate", review("UPDATE", new, new)) == {"allowed": True}

    def test_mutating_review_never_denies_or_warns(self) -> None:
        for new in (horse(GROUP, "a", legs=9), horse(GROUP, "pegasus"), horse(GROUP, "a", legs=3)):
            response = ask("mutate", review("CREATE", new))
            assert response["allowed"]
            assert "warnings" not in response

    @settings(max_examples=30)
    @given(
        st.dictionaries(
            st.text(max_size=3), st.none() | st.integers() | st.dictionaries(st.text(max_size=2), st.none())
        )
    )
    def test_json_patch_is_equivalent_to_function_merge_patch(self, patch: dict[str, Any]) -> None:
        new = horse(GROUP, "a", legs=4)
        response = ask("mutate", review("CREATE", new), noting([], AdmissionResult(patch=patch)))
        operations = msgspec.json.decode(base64.b64decode(response.get("patch", "W10=")))
        assert apply_json_patch(new, operations) == apply_merge_patch(new, patch)


class TestValidating:
    def test_validation_errors_are_listed_as_causes(self) -> None:
        response = ask("validate", review("UPDATE", horse(GROUP, "a", legs=5), horse(GROUP, "a")))
        assert not response["allowed"]
        status = response["status"]
        assert (status["code"], status["reason"], status["details"]["kind"]) == (422, "Invalid", "Horse")
        assert [cause["field"] for cause in status["details"]["causes"]] == ["spec.legs", "spec.legs"]
        assert status["message"].startswith('Horse.ranch.example "a" is invalid: [spec.legs: Invalid value: 5')

    def test_denied_review_returns_forbidden(self) -> None:
        status = ask("validate", review("CREATE", horse(GROUP, "pegasus")))["status"]
        assert (status["code"], status["reason"]) == (403, "Forbidden")
        assert status["message"] == 'horses.ranch.example "pegasus" is forbidden: only zeus rides it'

    def test_missing_permission_is_denied_before_the_function_is_called(self) -> None:
        seen: list[Review] = []

        def needs(review: Review) -> list[RequiredAccess]:
            name = (review.new or {})["metadata"]["name"]
            return [
                RequiredAccess(verb="get", group="", resource="secrets", namespace="ns", name=name, field="spec.saddle")
            ]

        webhook = msgspec.structs.replace(noting(seen, AdmissionResult(warnings=("there is no saddle",))), needs=needs)
        response = ask("validate", review("CREATE", horse(GROUP, "black")), webhook)
        assert response["status"]["code"] == 403
        assert "spec.saddle: you need the right to get secrets ns/black; " in response["status"]["message"]
        assert "warnings" not in response
        assert not seen
        assert ask("mutate", review("CREATE", horse(GROUP, "black")), webhook) == {"allowed": True}
        assert ask("validate", review("CREATE", horse(GROUP, "grey")), webhook)["allowed"]

    def test_validating_review_returns_each_warning_once(self) -> None:
        response = ask("validate", review("CREATE", horse(GROUP, "a", legs=3)))
        assert response == {"allowed": True, "warnings": ["three legs are odd"]}

    def test_delete_review_validates_the_old_object(self) -> None:
        old = horse(GROUP, "a")
        assert ask("validate", review("DELETE", None, old)) == {"allowed": True}
        old["metadata"]["labels"] = {"keep": "yes"}
        assert ask("validate", review("DELETE", None, old))["status"]["code"] == 403


class TestTheReview:
    def test_review_contains_all_request_fields(self) -> None:
        seen: list[Review] = []
        new, old = horse(GROUP, "a"), horse(GROUP, "a", legs=1)
        ask("validate", review("UPDATE", new, old, name="a", subResource="status", dryRun=True), noting(seen))
        (found,) = seen
        assert (found.operation, found.group, found.version, found.kind) == ("UPDATE", GROUP, "v1", "Horse")
        assert (found.resource, found.subresource, found.namespace, found.name) == ("horses", "status", "ns", "a")
        assert (found.user, found.groups, found.new, found.old, found.dry_run) == ("jane", ("a",), new, old, True)
        assert found.lookup is nothing

    def test_review_defaults_missing_groups_and_name_to_empty(self) -> None:
        seen: list[Review] = []
        new = {"metadata": {"generateName": "a-"}}
        ask("validate", review("CREATE", new, userInfo={"username": "x", "groups": None}), noting(seen))
        assert (seen[0].groups, seen[0].name) == ((), "")

    def test_unregistered_operations_are_allowed(self) -> None:
        seen: list[Review] = []
        assert ask("validate", review("CONNECT"), noting(seen)) == {"allowed": True}
        assert ask("mutate", review("DELETE", None, horse(GROUP, "a")), noting(seen)) == {"allowed": True}
        assert not seen

    @pytest.mark.parametrize(
        "body",
        [
            *(b"", b"{}", b"[]", review("CREATE").replace(b"k8s.io/v1", b"k8s.io/v1beta1"), b'{"request":{"uid":1}}'),
            *(b'{"kind":"\xff"}', b'{"request":' + b"[" * 100_000),
        ],
    )
    def test_malformed_admission_review_returns_bad_request(self, body: bytes) -> None:
        with pytest.raises(StatusError, match="not an AdmissionReview") as caught:
            asyncio.run(answer(HORSES, "mutate", body, nothing, permits=only_grey_horses))
        assert caught.value.code == 400


def test_registrations_are_joined_with_their_kinds() -> None:
    kind = Kind("cluster.x-k8s.io/v1beta2", "Machine", "machines", Object)
    function = HORSES.function
    (found,) = join([kind], [AdmissionRegistration("cluster.x-k8s.io", "machines", function, ("CREATE", "DELETE"))])
    assert found.path("mutate") == "/mutate-cluster-x-k8s-io-v1beta2-machine"
    assert found.path("validate") == "/validate-cluster-x-k8s-io-v1beta2-machine"
    assert (found.operations_of("mutate"), found.operations_of("validate")) == (("CREATE",), ("CREATE", "DELETE"))
    with pytest.raises(ValueError, match=r"of horses\.ranch\.example"):
        join([kind], [AdmissionRegistration(GROUP, "horses", function, ("CREATE",))])


async def test_review_lookup_reads_from_caches(server: ApiServer) -> None:
    caches = Caches(server.client())
    caches.of(CONFIG_MAP)
    await create(server.client(), "here", {"a": "b"})
    await caches.start()
    try:
        lookup = lookup_in(caches)
        found = lookup("v1", "configmaps", "default", "here")
        assert found is not None
        assert (found["kind"], found["data"]) == ("ConfigMap", {"a": "b"})
        assert lookup("v1", "configmaps", "default", "gone") is None
        with pytest.raises(Unseen):
            lookup(*Target("v1", "secrets"), "default", "here")
    finally:
        await caches.close()


async def test_review_lookup_rejects_partially_cached_kinds(server: ApiServer) -> None:
    caches = Caches(server.client())
    caches.of(CONFIG_MAP, label_selector="a=b")
    await caches.start()
    try:
        with pytest.raises(Unseen):
            lookup_in(caches)("v1", "configmaps", "default", "here")
        with pytest.raises(Unseen):
            select_in(caches)("v1", "configmaps", "default", {})
    finally:
        await caches.close()


async def test_review_select_filters_cached_objects_by_label(server: ApiServer) -> None:
    caches = Caches(server.client())
    caches.of(CONFIG_MAP)
    for name, coat in (("one", "bay"), ("two", "roan"), ("three", "bay")):
        metadata = {"name": name, "labels": {"horse": coat, "sort": name}}
        await server.client().create(
            CONFIG_MAP.target, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        )
    await caches.start()
    try:
        found = select_in(caches)("v1", "configmaps", "default", {"horse": "bay"})
        assert sorted(one["metadata"]["name"] for one in found) == ["one", "three"]
        assert select_in(caches)("v1", "configmaps", "kube-system", {"horse": "bay"}) == []
    finally:
        await caches.close()
