from __future__ import annotations

from typing import Any

import msgspec

from remuda.capi import names
from remuda.capi.machinedeployment import sets
from remuda.capi.machinedeployment.rollout import RolloutLimits
from remuda.capi.propagation import Keys
from remuda.capi.revisions import MachineSetRevision
from remuda.capi.types import MACHINE_DEPLOYMENT, MACHINE_SET, MachineDeployment
from remuda.runtime.draft import Draft

Json = dict[str, Any]
IDENTITY = MachineSetRevision("md-abcde", "123-abcde")


def raw(metadata: Json | None = None, template: Json | None = None, **spec: Any) -> Json:
    wanted = {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "unknown": {"kept": True}}
    return {
        "metadata": {"name": "md", "namespace": "ns", "uid": "u", "resourceVersion": "1", **(metadata or {})},
        "spec": {
            "clusterName": "c",
            "selector": {"matchLabels": {"pool": "a"}},
            "template": template or {"metadata": {"labels": {"pool": "a"}, "annotations": {"n": "1"}}, "spec": wanted},
            **spec,
        },
    }


def typed(obj: Json) -> MachineDeployment:
    return MACHINE_DEPLOYMENT.decode(msgspec.json.encode(obj))


def made(obj: Json, size: int = 2) -> Json:
    return sets.made(typed(obj), obj, IDENTITY, size, RolloutLimits(3, 1), 4)


def draft_of(machine_set: Json) -> Draft:
    metadata = {**machine_set["metadata"], "resourceVersion": "1"}
    return Draft(MACHINE_SET.target, msgspec.json.encode({**machine_set, "metadata": metadata}))


class TestMade:
    def test_created_machine_set_has_expected_metadata_and_spec(self) -> None:
        obj = raw(
            {
                "annotations": {
                    "team": "blue",
                    names.REVISION: "9",
                    names.LAST_APPLIED: "{}",
                    names.CONVERSION_DATA: "x",
                }
            },
            deletion={"order": "Newest"},
            machineNaming={"template": "x"},
            paused=True,
        )
        found = made(obj)
        own = {
            "pool": "a",
            names.CLUSTER_NAME: "c",
            names.DEPLOYMENT_NAME: "md",
            names.TEMPLATE_HASH: "123-abcde",
        }
        assert found["metadata"]["labels"] == found["spec"]["template"]["metadata"]["labels"] == own
        assert found["metadata"]["annotations"] == {
            "team": "blue",
            names.REVISION: "4",
            names.DISABLE_MACHINE_CREATE: "false",
            names.DESIRED_REPLICAS: "3",
            names.MAX_REPLICAS: "4",
        }
        assert found["metadata"]["finalizers"] == [names.MACHINE_SET_FINALIZER]
        [owner] = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("MachineDeployment", "u", True)
        spec = found["spec"]
        assert spec["selector"] == {"matchLabels": {"pool": "a", names.TEMPLATE_HASH: "123-abcde"}}
        assert spec["template"]["metadata"]["annotations"] == {"n": "1"}
        assert spec["template"]["spec"]["unknown"] == {"kept": True}
        assert (spec["replicas"], spec["deletion"], spec["machineNaming"]) == (
            2,
            {"order": "Newest"},
            {"template": "x"},
        )
        assert set(spec) == {"clusterName", "replicas", "selector", "template", "deletion", "machineNaming"}

    def test_creating_machine_set_does_not_modify_deployment(self) -> None:
        obj = raw()
        before = msgspec.json.encode(obj)
        made(obj)
        assert msgspec.json.encode(obj) == before

    def test_created_machine_set_keeps_match_expressions(self) -> None:
        expressions = [{"key": "pool", "operator": "Exists"}]
        found = made(raw(selector={"matchExpressions": expressions}))
        assert found["spec"]["selector"] == {
            "matchExpressions": expressions,
            "matchLabels": {names.TEMPLATE_HASH: "123-abcde"},
        }


class TestRenew:
    def test_new_machine_set_needs_no_update(self) -> None:
        obj = raw({"annotations": {"team": "blue"}})
        draft = draft_of(made(obj))
        sets.renew(draft, typed(obj), obj, 4, Keys())
        sets.resize(draft, 2, RolloutLimits(3, 1))
        assert draft.patches() == ({}, {})

    def test_renew_propagates_in_place_changes(self) -> None:
        draft = draft_of(made(raw({"annotations": {"gone": "x"}}, deletion={"order": "Newest"})))
        spec = {"clusterName": "c", "version": "v9", "minReadySeconds": 3}
        changed = raw({"annotations": {"new": "y"}}, {"metadata": {"labels": {"pool": "a", "tier": "1"}}, "spec": spec})
        sets.renew(draft, typed(changed), changed, 4, Keys(annotations=frozenset({"gone"})))
        assert "gone" not in draft.metadata["annotations"]
        assert draft.metadata["annotations"]["new"] == "y"
        template = draft.spec["template"]
        assert template["metadata"] == {"labels": draft.metadata["labels"]}
        assert draft.metadata["labels"]["tier"] == "1"
        assert draft.metadata["labels"][names.TEMPLATE_HASH] == "123-abcde"
        assert template["spec"]["minReadySeconds"] == 3
        assert "version" not in template["spec"]
        assert "deletion" not in draft.spec

    def test_renew_records_new_revision_in_history(self) -> None:
        obj = raw()
        draft = draft_of(made(obj))
        sets.renew(draft, typed(obj), obj, 6, Keys())
        notes = draft.metadata["annotations"]
        assert (notes[names.REVISION], notes[names.REVISION_HISTORY]) == ("6", "4")

    def test_adopted_machine_set_gets_no_template_hash(self) -> None:
        obj = raw()
        machine_set = made(obj)
        for labels in (machine_set["metadata"]["labels"], machine_set["spec"]["template"]["metadata"]["labels"]):
            del labels[names.TEMPLATE_HASH]
        draft = draft_of(machine_set)
        sets.renew(draft, typed(obj), obj, 4, Keys())
        assert draft.patches() == ({}, {})


class TestRetire:
    def test_retire_changes_only_deletion_settings(self) -> None:
        draft = draft_of(made(raw(deletion={"order": "Newest"})))
        spec = {"version": "v9", "minReadySeconds": 3, "deletion": {"nodeDrainTimeoutSeconds": 7}}
        changed = raw(None, {"metadata": {"labels": {"pool": "b"}}, "spec": spec}, deletion={"order": "Oldest"})
        sets.retire(draft, changed, on_delete=True)
        patch, _ = draft.patches()
        assert patch == {
            "metadata": {"annotations": {names.DISABLE_MACHINE_CREATE: "true"}},
            "spec": {
                "deletion": {"order": "Oldest"},
                "template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 7}}},
            },
        }


class TestResize:
    def test_resize_records_desired_and_max_replicas(self) -> None:
        draft = draft_of(made(raw()))
        sets.resize(draft, 5, RolloutLimits(6, 2))
        patch, _ = draft.patches()
        assert patch["spec"] == {"replicas": 5}
        assert patch["metadata"]["annotations"] == {names.DESIRED_REPLICAS: "6", names.MAX_REPLICAS: "8"}

    def test_resize_leaves_empty_machine_set_unchanged(self) -> None:
        draft = draft_of(made(raw(), size=0))
        sets.resize(draft, 0, RolloutLimits(6, 2))
        assert draft.patches() == ({}, {})
