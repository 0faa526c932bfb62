from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.apiserver.client import LocalClient
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.storage.types import StorageFailed
from remuda.kube.admission import EVERY_KIND, AdmissionResult, Review
from remuda.kube.client import Target
from remuda.kube.errors import StatusError, invalid
from tests.unit.apiserver.registry.conftest import NAMESPACES, WIDGETS, Everyone, loads, widget


async def refused(awaitable: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await awaitable
    return caught.value


class TestCreate:
    async def test_create_sets_server_managed_metadata(self, client: LocalClient) -> None:
        body = widget(colour="red")
        body["metadata"] |= {"uid": "mine", "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}
        body["status"] = {"phase": "Done"}
        made = loads(await client.create(WIDGETS, "ns", body))
        meta = made["metadata"]
        assert meta["uid"] != "mine"
        assert meta["generation"] == 1
        assert meta["namespace"] == "ns"
        assert meta["creationTimestamp"] > "2020"
        assert int(meta["resourceVersion"]) > 0
        assert made["spec"] == {"colour": "red", "size": 1}
        assert "status" not in made

    async def test_created_object_is_returned_by_get(self, client: LocalClient) -> None:
        made = await client.create(WIDGETS, "ns", widget())
        assert await client.get(WIDGETS, "ns", "w") == made

    async def test_create_does_not_modify_its_argument(self, client: LocalClient) -> None:
        body = widget()
        await client.create(WIDGETS, "ns", body)
        assert body == widget()

    async def test_create_of_existing_name_returns_already_exists(self, client: LocalClient) -> None:
        await client.create(WIDGETS, "ns", widget())
        error = await refused(client.create(WIDGETS, "ns", widget()))
        assert (error.code, error.reason) == (409, "AlreadyExists")
        assert error.message == 'widgets.test.io "w" already exists'

    async def test_concurrent_creates_succeed_exactly_once(self, client: LocalClient) -> None:
        results = await asyncio.gather(
            *(client.create(WIDGETS, "ns", widget()) for _ in range(20)), return_exceptions=True
        )
        assert sum(isinstance(r, bytes) for r in results) == 1
        assert all(r.reason == "AlreadyExists" for r in results if isinstance(r, StatusError))

    async def test_create_generates_unique_names(self, client: LocalClient) -> None:
        body = {"metadata": {"generateName": "w-"}, "spec": {}}
        names = {loads(await client.create(WIDGETS, "ns", body))["metadata"]["name"] for _ in range(5)}
        assert len(names) == 5
        assert all(name.startswith("w-") and len(name) == 7 for name in names)

    async def test_create_requires_a_name(self, client: LocalClient) -> None:
        error = await refused(client.create(WIDGETS, "ns", {"metadata": {}, "spec": {}}))
        assert error.code == 422
        assert "name or generateName is required" in error.message

    async def test_create_in_missing_namespace_returns_404(self, client: LocalClient) -> None:
        error = await refused(client.create(WIDGETS, "nowhere", widget()))
        assert (error.code, error.message) == (404, 'namespaces "nowhere" not found')

    async def test_create_rejects_namespace_not_matching_request(self, client: LocalClient) -> None:
        body = widget()
        body["metadata"]["namespace"] = "other"
        assert (await refused(client.create(WIDGETS, "ns", body))).code == 400

    @pytest.mark.parametrize(("field", "value"), [("kind", "Gadget"), ("apiVersion", "test.io/v9")])
    async def test_create_rejects_wrong_kind_or_api_version(self, client: LocalClient, field: str, value: str) -> None:
        assert (await refused(client.create(WIDGETS, "ns", {**widget(), field: value}))).code == 400

    async def test_create_error_lists_all_invalid_fields(self, client: LocalClient) -> None:
        error = await refused(client.create(WIDGETS, "ns", widget(size=-1, colour=5)))
        assert (error.code, error.reason) == (422, "Invalid")
        assert {c["field"] for c in error.details["causes"]} == {"spec.size", "spec.colour"}

    async def test_dry_run_create_writes_nothing(self, client: LocalClient, registry: Registry) -> None:
        before = registry.store.revision
        made = loads(await client.create(WIDGETS, "ns", widget(), dry_run=True))
        assert made["metadata"]["uid"]
        assert registry.store.revision == before
        assert (await refused(client.get(WIDGETS, "ns", "w"))).code == 404

    async def test_create_rejects_resource_version(self, client: LocalClient) -> None:
        body = widget()
        body["metadata"]["resourceVersion"] = "5"
        await refused(client.create(WIDGETS, "ns", body))


class TestUpdate:
    async def test_update_bumps_generation_only_for_spec_changes(self, client: LocalClient) -> None:
        made = loads(await client.create(WIDGETS, "ns", widget()))
        made["metadata"]["labels"] = {"a": "b"}
        labelled = loads(await client.update(WIDGETS, "ns", "w", made))
        assert labelled["metadata"]["generation"] == 1
        labelled["spec"]["colour"] = "blue"
        painted = loads(await client.update(WIDGETS, "ns", "w", labelled))
        assert painted["metadata"]["generation"] == 2
        painted["status"] = {"phase": "Ready"}
        reported = loads(await client.update(WIDGETS, "ns", "w", painted, subresource="status"))
        assert reported["metadata"]["generation"] == 2

    async def test_update_and_status_update_change_only_their_part(self, client: LocalClient) -> None:
        made = loads(await client.create(WIDGETS, "ns", widget(colour="red")))
        both = {**made, "spec": {"colour": "blue", "size": 1}, "status": {"phase": "Ready"}}
        updated = loads(await client.update(WIDGETS, "ns", "w", both))
        assert (updated["spec"]["colour"], updated.get("status")) == ("blue", None)
        both["metadata"] = updated["metadata"]
        both["spec"] = {"colour": "green"}
        reported = loads(await client.update(WIDGETS, "ns", "w", both, subresource="status"))
        assert (reported["spec"]["colour"], reported["status"]) == ("blue", {"phase": "Ready"})

    async def test_update_with_stale_resource_version_conflicts(self, client: LocalClient) -> None:
        made = loads(await client.create(WIDGETS, "ns", widget()))
        await client.patch(WIDGETS, "ns", "w", {"spec": {"colour": "red"}})
        error = await refused(client.update(WIDGETS, "ns", "w", {**made, "spec": {"colour": "blue"}}))
        assert (error.code, error.reason) == (409, "Conflict")
        assert "the object has been modified" in error.message

    async def test_update_without_resource_version_is_rejected(self, client: LocalClient) -> None:
        await client.create(WIDGETS, "ns", widget())
        error = await refused(client.update(WIDGETS, "ns", "w", widget()))
        assert error.code == 422
        assert "must be specified for an update" in error.message

    async def test_update_with_another_uid_conflicts(self, client: LocalClient) -> None:
        made = loads(await client.create(WIDGETS, "ns", widget()))
        made["metadata"]["uid"] = "other"
        error = await refused(client.update(WIDGETS, "ns", "w", made))
        assert "Precondition failed: UID in precondition" in error.message

    async def test_update_cannot_change_name(self, client: LocalClient) -> None:
        made = loads(await client.create(WIDGETS, "ns", widget()))
        made["metadata"]["name"] = "v"
        assert (await refused(client.update(WIDGETS, "ns", "w", made))).code == 400

    async def test_no_op_update_writes_nothing(self, client: LocalClient, registry: Registry) -> None:
        made = loads(await client.create(WIDGETS, "ns", widget()))
        before = registry.store.revision
        again = loads(await client.update(WIDGETS, "ns", "w", made, field_manager="someone-else"))
        assert again == made
        assert registry.store.revision == before

    async def test_patch_of_missing_object_returns_404(self, client: LocalClient) -> None:
        assert (await refused(client.patch(WIDGETS, "ns", "w", {}))).code == 404


class TestPatch:
    async def test_merge_patch_and_json_patch_are_applied(self, client: LocalClient) -> None:
        await client.create(WIDGETS, "ns", widget(colour="red"))
        merged = loads(await client.patch(WIDGETS, "ns", "w", {"spec": {"colour": None, "size": 4}}))
        assert merged["spec"] == {"size": 4}
        operations = [
            {"op": "test", "path": "/spec/size", "value": 4},
            {"op": "add", "path": "/spec/colour", "value": "x"},
        ]
        patched = loads(await client.patch(WIDGETS, "ns", "w", operations, kind="json"))
        assert patched["spec"] == {"size": 4, "colour": "x"}

    async def test_concurrent_patches_are_all_applied(self, client: LocalClient) -> None:
        await client.create(WIDGETS, "ns", widget())
        patches = ({"metadata": {"labels": {f"k{n}": "v"}}} for n in range(50))
        await asyncio.gather(*(client.patch(WIDGETS, "ns", "w", patch) for patch in patches))
        found = loads(await client.get(WIDGETS, "ns", "w"))
        assert len(found["metadata"]["labels"]) == 50

    async def test_patch_with_stale_resource_version_conflicts(self, client: LocalClient) -> None:
        made = loads(await client.create(WIDGETS, "ns", widget()))
        lock = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"size": 2}}
        await client.patch(WIDGETS, "ns", "w", lock)
        assert (await refused(client.patch(WIDGETS, "ns", "w", {**lock, "spec": {"size": 3}}))).code == 409


class TestApply:
    async def test_apply_creates_object_and_records_manager(self, client: LocalClient) -> None:
        made = loads(await client.patch(WIDGETS, "ns", "w", widget(colour="red"), kind="apply", field_manager="a"))
        (entry,) = made["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("a", "Apply")
        assert entry["fieldsV1"] == {"f:spec": {"f:colour": {}}}

    async def test_repeated_apply_writes_nothing(self, client: LocalClient, registry: Registry) -> None:
        await client.patch(WIDGETS, "ns", "w", widget(colour="red"), kind="apply", field_manager="a")
        before = registry.store.revision
        await client.patch(WIDGETS, "ns", "w", widget(colour="red"), kind="apply", field_manager="a")
        assert registry.store.revision == before

    async def test_apply_to_fields_of_another_manager_conflicts_unless_forced(self, client: LocalClient) -> None:
        await client.patch(WIDGETS, "ns", "w", widget(colour="red"), kind="apply", field_manager="a")
        theirs = widget(colour="blue")
        error = await refused(client.patch(WIDGETS, "ns", "w", theirs, kind="apply", field_manager="b"))
        assert (error.code, error.reason) == (409, "Conflict")
        assert 'conflict with "a": .spec.colour' in error.message
        forced = loads(await client.patch(WIDGETS, "ns", "w", theirs, kind="apply", field_manager="b", force=True))
        assert forced["spec"]["colour"] == "blue"

    async def test_apply_removes_fields_dropped_from_configuration(self, client: LocalClient) -> None:
        both = widget(parts=[{"name": "a", "count": 1}, {"name": "b", "count": 1}])
        await client.patch(WIDGETS, "ns", "w", both, kind="apply", field_manager="a")
        one = widget(parts=[{"name": "b", "count": 1}])
        left = loads(await client.patch(WIDGETS, "ns", "w", one, kind="apply", field_manager="a"))
        assert left["spec"]["parts"] == [{"name": "b", "count": 1}]

    async def test_apply_creating_object_requires_create_permission(
        self, client: LocalClient, authorizer: Everyone
    ) -> None:
        authorizer.forbidden.add("create")
        error = await refused(client.patch(WIDGETS, "ns", "w", widget(), kind="apply", field_manager="a"))
        assert error.code == 403

    async def test_apply_with_uid_of_missing_object_conflicts(self, client: LocalClient) -> None:
        body = widget()
        body["metadata"]["uid"] = "gone"
        error = await refused(client.patch(WIDGETS, "ns", "w", body, kind="apply", field_manager="a"))
        assert (error.code, error.reason) == (409, "Conflict")


class TestScale:
    async def test_scale_update_sets_replicas(self, client: LocalClient) -> None:
        await client.create(WIDGETS, "ns", widget(replicas=2))
        scale = loads(await client.get(WIDGETS, "ns", "w", subresource="scale"))
        assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["replicas"]) == ("Scale", 2, 0)
        scale["spec"]["replicas"] = 5
        written = loads(await client.update(WIDGETS, "ns", "w", scale, subresource="scale"))
        assert written["spec"]["replicas"] == 5
        found = loads(await client.get(WIDGETS, "ns", "w"))
        assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (5, 2)

    async def test_scale_patch_sets_replicas(self, client: LocalClient) -> None:
        await client.create(WIDGETS, "ns", widget(replicas=2))
        await client.patch(WIDGETS, "ns", "w", {"spec": {"replicas": 3}}, subresource="scale")
        assert loads(await client.get(WIDGETS, "ns", "w"))["spec"]["replicas"] == 3


class TestVersions:
    async def test_object_is_readable_in_all_served_versions(self, client: LocalClient) -> None:
        old = Target("test.io/v1alpha1", "widgets")
        await client.create(old, "ns", {**widget(colour="red"), "apiVersion": "test.io/v1alpha1"})
        assert loads(await client.get(WIDGETS, "ns", "w"))["apiVersion"] == "test.io/v1"
        assert loads(await client.get(old, "ns", "w"))["apiVersion"] == "test.io/v1alpha1"
        (listed,) = (await client.list(old, "ns")).items
        assert loads(listed)["apiVersion"] == "test.io/v1alpha1"


class TestAdmission:
    async def test_admission_function_patches_and_rejects(self, client: LocalClient, registry: Registry) -> None:
        def paint(review: Review) -> AdmissionResult:
            assert review.new is not None
            if review.new["spec"].get("colour") == "plaid":
                return AdmissionResult(errors=(invalid("spec.colour", "plaid", "no horse is plaid"),))
            if review.new["spec"].get("colour") == "secret":
                return AdmissionResult(denied="nobody may")
            return AdmissionResult(patch={"spec": {"colour": "bay"}}, warnings=("painted",))

        registry.admission.register("test.io", "widgets", paint, ("CREATE",))
        assert loads(await client.create(WIDGETS, "ns", widget()))["spec"]["colour"] == "bay"
        assert (await refused(client.create(WIDGETS, "ns", widget("x", colour="plaid")))).code == 422
        assert (await refused(client.create(WIDGETS, "ns", widget("x", colour="secret")))).code == 403

    async def test_admission_function_can_look_up_other_objects(self, client: LocalClient, registry: Registry) -> None:
        seen = []

        def look(review: Review) -> AdmissionResult:
            seen.append(review.lookup("v1", "namespaces", "", "ns"))
            return AdmissionResult()

        registry.admission.register("test.io", "widgets", look)
        await client.create(WIDGETS, "ns", widget())
        assert seen[0]["metadata"]["name"] == "ns"

    async def test_group_wide_admission_function_can_select_objects_by_label(
        self, client: LocalClient, registry: Registry
    ) -> None:
        seen = []

        def look(review: Review) -> AdmissionResult:
            found = review.select("test.io/v1", "widgets", "ns", {"horse": "bay"})
            seen.append((review.kind, [one["metadata"]["name"] for one in found]))
            return AdmissionResult()

        registry.admission.register("test.io", EVERY_KIND, look, ("CREATE",))
        for name, horse in (("one", "bay"), ("two", "roan"), ("three", "bay")):
            body = widget(name)
            body["metadata"]["labels"] = {"horse": horse, "sort": name}
            await client.create(WIDGETS, "ns", body)
        await client.create(NAMESPACES, "", {"metadata": {"name": "other"}})  # of another group
        assert seen == [("Widget", []), ("Widget", ["one"]), ("Widget", ["one"])]


class TestTerminatingNamespace:
    async def test_create_in_terminating_namespace_is_forbidden(self, client: LocalClient) -> None:
        body = {"metadata": {"name": "ending", "finalizers": ["test.io/hold"]}}
        await client.create(NAMESPACES, "", body)
        await client.delete(NAMESPACES, "", "ending")
        error = await refused(client.create(WIDGETS, "ending", widget()))
        assert error.code == 403
        assert error.details["causes"][0]["reason"] == "NamespaceTerminating"


class TestFullDisk:
    async def test_full_disk_error_message_reaches_the_client(
        self, client: LocalClient, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fails(*_: Any, **__: Any) -> None:
            raise StorageFailed("the write could not be made durable: the disk is full")

        monkeypatch.setattr(registry.store, "put", fails)
        error = await refused(client.create(WIDGETS, "ns", widget()))
        assert (error.code, error.reason) == (500, "InternalError")
        assert error.message == "Internal error occurred: the write could not be made durable: the disk is full"


class TestOwners:
    async def test_duplicate_owner_references_are_deduplicated(self, client: LocalClient) -> None:
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": "ns", "uid": "u"}
        other = {**owner, "uid": "v"}
        body = widget()
        body["metadata"]["ownerReferences"] = [owner, other, dict(owner)]
        made = loads(await client.create(WIDGETS, "ns", body))
        assert made["metadata"]["ownerReferences"] == [owner, other]
