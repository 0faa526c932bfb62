"""What is read of providers' objects, under either contract, and what is said of objects that break it."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import contract
from remuda.capi.contract import ContractError, ControlPlaneCounts, ProviderObject, VersionCount
from remuda.kube.client import Target
from remuda.kube.objects import Key

BOTH = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def thing(version: str = "v1beta2", kind: str = "DevThing", **parts: Any) -> ProviderObject:
    raw = {"kind": kind, "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7"}, **parts}
    return ProviderObject(msgspec.json.encode(raw), Target("dev.example.com/v1", "devthings"), version)


def new(status: Any = None, **parts: Any) -> ProviderObject:
    return thing("v1beta2", status=status, **parts)


def old(status: Any = None, **parts: Any) -> ProviderObject:
    return thing("v1beta1", status=status, **parts)


def test_provider_object_exposes_kind_key_and_deletion() -> None:
    obj = thing(metadata={"name": "a", "namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert (obj.kind, obj.group_kind, obj.key, obj.deleting) == (
        "DevThing",
        "DevThing.dev.example.com",
        Key("ns", "a"),
        True,
    )
    assert str(obj) == "DevThing ns/a"
    assert not thing().deleting


def test_draft_does_not_modify_provider_object() -> None:
    obj = thing(spec={"size": 1})
    draft = obj.draft()
    draft.spec["size"] = 2
    assert obj.raw["spec"] == {"size": 1}
    assert draft.patches() == ({"spec": {"size": 2}}, {})


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        (contract.provisioned, "provisioned"),
        (contract.data_secret_created, "dataSecretCreated"),
        (contract.initialized, "controlPlaneInitialized"),
    ],
)
def test_contract_flags_are_read_under_both_contracts(flag: Any, path: str) -> None:
    old_path = "initialized" if flag is contract.initialized else "ready"
    assert flag(new({"initialization": {path: True}}))
    assert flag(old({old_path: True}))
    for obj in (
        new(),
        new({}),
        new({"initialization": {}}),
        new({"initialization": {path: False}}),
        new({"initialization": {path: None}}),
        new({old_path: True}),
        old({}),
        old({"initialization": {path: True}}),
    ):
        assert not flag(obj)


def test_ready_v1beta1_control_plane_is_not_initialized() -> None:
    assert not contract.initialized(old({"ready": True}))


def test_contract_flag_paths_depend_on_contract_version() -> None:
    assert ".".join(contract.provisioned_path(new())) == "status.initialization.provisioned"
    assert ".".join(contract.provisioned_path(old())) == "status.ready"
    assert ".".join(contract.data_secret_created_path(new())) == "status.initialization.dataSecretCreated"
    assert ".".join(contract.data_secret_created_path(old())) == "status.ready"
    assert ".".join(contract.initialized_path(new())) == "status.initialization.controlPlaneInitialized"
    assert ".".join(contract.initialized_path(old())) == "status.initialized"


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (
            new({"initialization": {"provisioned": "yes"}}),
            "DevThing ns/a does not follow the v1beta2 contract: status.initialization.provisioned: Expected `bool`",
        ),
        (new({"initialization": "done"}), "status.initialization is not an object"),
        (new([]), "status is not an object"),
        (old({"ready": 1}), "does not follow the v1beta1 contract: status.ready: Expected `bool`"),
    ],
)
def test_malformed_contract_flag_is_named_in_error(obj: ProviderObject, words: str) -> None:
    with pytest.raises(ContractError) as told:
        contract.provisioned(obj)
    assert words in str(told.value)


class TestConditions:
    READY: ClassVar[dict[str, Any]] = {
        "type": "Ready",
        "status": "True",
        "reason": "Fine",
        "message": "all is well",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    @BOTH
    def test_metav1_conditions_are_read(self, version: str) -> None:
        found = contract.condition(thing(version, status={"conditions": [self.READY]}), "Ready")
        assert found is not None
        assert (found.status, found.reason, found.message) == ("True", "Fine", "all is well")
        assert found.last_transition_time == "2026-01-01T00:00:00Z"

    @BOTH
    def test_v1beta1_conditions_without_reason_are_read(self, version: str) -> None:
        raw = {"type": "Ready", "status": "False", "severity": "Error", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        found = contract.condition(thing(version, status={"conditions": [raw]}), "Ready")
        assert found is not None
        assert (found.status, found.reason, found.message) == ("False", "", "")

    def test_status_v1beta2_conditions_take_precedence(self) -> None:
        status = {"v1beta2": {"conditions": [self.READY]}, "conditions": [self.READY | {"status": "False"}]}
        found = contract.condition(new(status), "Ready")
        assert found is not None
        assert found.status == "True"
        assert contract.condition(new({"v1beta2": {"conditions": []}, "conditions": [self.READY]}), "Ready") is None

    def test_missing_condition_is_none(self) -> None:
        assert contract.condition(new(), "Ready") is None
        assert contract.condition(new({"conditions": [self.READY]}), "Available") is None

    @pytest.mark.parametrize("reason", ["no good", "1st", "", "x" * 1025, "trailing:"])
    def test_invalid_condition_reason_is_read_as_empty(self, reason: str) -> None:
        found = contract.condition(new({"conditions": [self.READY | {"reason": reason}]}), "Ready")
        assert found is not None
        assert found.reason == ""

    @pytest.mark.parametrize("time", ["", "yesterday", "2026-01-01T00:00:00", None])
    def test_invalid_condition_time_is_read_as_empty(self, time: str | None) -> None:
        found = contract.condition(new({"conditions": [self.READY | {"lastTransitionTime": time}]}), "Ready")
        assert found is not None
        assert found.last_transition_time == ""

    @pytest.mark.parametrize("time", ["2026-01-01T00:00:00.999Z", "2026-01-01T01:00:00+01:00"])
    def test_condition_times_are_normalized_to_utc_seconds(self, time: str) -> None:
        found = contract.condition(new({"conditions": [self.READY | {"lastTransitionTime": time}]}), "Ready")
        assert found is not None
        assert found.last_transition_time == "2026-01-01T00:00:00Z"

    @pytest.mark.parametrize("broken", [{"status": "Maybe"}, {"status": True}, {"message": 5}, {"status": ""}])
    def test_malformed_condition_error_names_the_condition(self, broken: dict[str, Any]) -> None:
        obj = new({"conditions": [self.READY | broken]})
        with pytest.raises(ContractError, match="its condition Ready"):
            contract.condition(obj, "Ready")
        assert contract.condition(obj, "Available") is None

    def test_conditions_skips_malformed_entries(self) -> None:
        status = {"conditions": [self.READY, {"type": "Odd", "status": 5}, {"type": "Paused", "status": "False"}]}
        assert [one.type for one in contract.conditions(new(status))] == ["Ready", "Paused"]
        assert contract.conditions(new({"conditions": {"Ready": "True"}})) == []


@BOTH
class TestInfrastructure:
    def test_control_plane_endpoint_is_read(self, version: str) -> None:
        obj = thing(version, spec={"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}})
        assert contract.endpoint(obj).valid
        assert str(contract.endpoint(obj)) == "10.0.0.1:6443"

    @pytest.mark.parametrize("endpoint", [None, {}, {"host": "", "port": 0}, {"host": "a"}, {"port": 1}])
    def test_incomplete_endpoint_is_invalid(self, version: str, endpoint: Any) -> None:
        assert not contract.endpoint(thing(version, spec={"controlPlaneEndpoint": endpoint})).valid

    def test_infrastructure_machine_fields_are_read(self, version: str) -> None:
        obj = thing(
            version,
            spec={"providerID": "dev://1", "failureDomain": "chosen"},
            status={
                "failureDomain": "east",
                "interruptible": True,
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1", "extra": "dropped"},
                    {"type": "Hostname"},
                    {"address": "x"},
                ],
            },
        )
        assert contract.provider_id(obj) == "dev://1"
        assert contract.failure_domain(obj) == "east"
        assert contract.chosen_failure_domain(obj) == "chosen"
        assert contract.interruptible(obj)
        assert contract.addresses(obj) == [{"type": "InternalIP", "address": "10.0.0.1"}]

    def test_empty_infrastructure_machine_has_empty_fields(self, version: str) -> None:
        obj = thing(version)
        assert contract.provider_id(obj) == contract.failure_domain(obj) == contract.chosen_failure_domain(obj) == ""
        assert contract.addresses(obj) == []
        assert not contract.interruptible(obj)

    def test_deprecated_failure_fields_are_read(self, version: str) -> None:
        obj = thing(version, status={"failureReason": "CreateError", "failureMessage": "no quota"})
        assert contract.failure(obj) == ("CreateError", "no quota")
        assert contract.failure(thing(version)) == ("", "")

    def test_bootstrap_data_secret_name_is_read(self, version: str) -> None:
        assert contract.data_secret_name(thing(version, status={"dataSecretName": "s"})) == "s"
        assert contract.data_secret_name(thing(version)) == ""


class TestFailureDomains:
    LIST: ClassVar[list[dict[str, Any]]] = [
        {"name": "east", "controlPlane": True},
        {"name": "north", "controlPlane": False, "attributes": {"cold": "yes"}},
        {"name": "west"},
    ]

    def test_failure_domain_list_is_sorted_by_name(self) -> None:
        assert contract.failure_domains(new({"failureDomains": self.LIST[::-1]})) == self.LIST

    def test_v1beta1_failure_domain_map_becomes_a_sorted_list(self) -> None:
        by_name = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in self.LIST[::-1]}
        assert contract.failure_domains(old({"failureDomains": by_name})) == self.LIST

    def test_missing_failure_domains_are_empty(self) -> None:
        assert contract.failure_domains(new()) == contract.failure_domains(old()) == []

    def test_failure_domains_of_other_contract_shape_are_rejected(self) -> None:
        with pytest.raises(ContractError, match=r"status\.failureDomains"):
            contract.failure_domains(new({"failureDomains": {"east": {}}}))
        with pytest.raises(ContractError, match=r"status\.failureDomains"):
            contract.failure_domains(old({"failureDomains": self.LIST}))

    @given(st.dictionaries(st.text(min_size=1, max_size=5), st.booleans()))
    def test_failure_domains_are_equal_under_both_contracts(self, domains: dict[str, bool]) -> None:
        listed = [{"name": name, "controlPlane": flag} for name, flag in domains.items()]
        by_name = {name: {"controlPlane": flag} for name, flag in domains.items()}
        assert contract.failure_domains(new({"failureDomains": listed})) == contract.failure_domains(
            old({"failureDomains": by_name})
        )


class TestControlPlane:
    def test_control_plane_counts_are_read(self) -> None:
        status = {"replicas": 4, "readyReplicas": 2, "availableReplicas": 1, "upToDateReplicas": 3}
        assert contract.counts(new(status, spec={"replicas": 3})) == ControlPlaneCounts(3, 4, 2, 1, 3)

    @pytest.mark.parametrize(
        ("desired", "unavailable", "available"), [(3, 1, 2), (3, 5, 0), (None, 1, None), (3, None, None)]
    )
    def test_v1beta1_control_plane_counts_are_converted(
        self, desired: int | None, unavailable: int | None, available: int | None
    ) -> None:
        status = {"replicas": 4, "readyReplicas": 2, "unavailableReplicas": unavailable, "updatedReplicas": 3}
        assert contract.counts(old(status, spec={"replicas": desired})) == ControlPlaneCounts(
            desired, 4, 2, available, 3
        )

    def test_control_plane_without_replicas_has_no_counts(self) -> None:
        assert contract.counts(new()) == ControlPlaneCounts(None, None, None, None, None)

    def test_running_versions_prefer_status_versions(self) -> None:
        listed = {"versions": [{"version": "v1.30.0", "replicas": 1}, {"version": "v1.31.0"}], "version": "v1.29.0"}
        assert contract.running_versions(new(listed)) == [VersionCount("v1.30.0", 1), VersionCount("v1.31.0")]
        assert contract.running_versions(old(listed)) == [VersionCount("v1.29.0")]
        assert contract.running_versions(new({"version": "v1.29.0"})) == [VersionCount("v1.29.0")]
        assert contract.running_versions(new()) == []

    @pytest.mark.parametrize(
        ("desired", "running", "provisioning", "upgrading"),
        [
            (None, None, False, False),
            (None, "v1.30.0", False, False),
            ("v1.30.0", None, True, False),
            ("v1.30.0", "v1.30.0", False, False),
            ("v1.31.0", "v1.30.0", False, True),
            ("v1.30.0+k3s2", "v1.30.0+k3s1", False, True),
            ("v1.30.0", "v1.31.0", False, False),
        ],
    )
    def test_provisioning_and_upgrading_follow_desired_and_running_version(
        self, desired: str | None, running: str | None, provisioning: bool, upgrading: bool
    ) -> None:
        obj = new({"version": running}, spec={"version": desired})
        assert contract.is_provisioning(obj) is provisioning
        assert contract.is_upgrading(obj) is upgrading

    def test_lowest_running_version_decides_upgrading(self) -> None:
        status = {"versions": [{"version": "v1.31.0"}, {"version": "v1.30.0"}]}
        assert contract.is_upgrading(new(status, spec={"version": "v1.31.0"}))

    def test_non_semantic_version_is_rejected(self) -> None:
        with pytest.raises(ContractError, match="'latest' is not a semantic version"):
            contract.is_upgrading(new({"version": "v1.30.0"}, spec={"version": "latest"}))

    @BOTH
    def test_externally_managed_control_plane_flag_is_read(self, version: str) -> None:
        assert contract.externally_managed_control_plane(thing(version, status={"externalManagedControlPlane": True}))
        assert not contract.externally_managed_control_plane(thing(version))


class TestTemplates:
    def test_template_spec_metadata_and_capacity_are_read(self) -> None:
        metadata = {"labels": {"a": "1"}, "annotations": {"b": "2"}}
        obj = new(
            {"capacity": {"cpu": 4, "memory": "8Gi"}}, spec={"template": {"metadata": metadata, "spec": {"x": [1]}}}
        )
        assert contract.template_spec(obj) == {"x": [1]}
        assert contract.template_labels(obj) == {"a": "1"}
        assert contract.template_annotations(obj) == {"b": "2"}
        assert contract.capacity(obj) == {"cpu": "4", "memory": "8Gi"}

    def test_empty_template_has_empty_fields(self) -> None:
        assert contract.template_spec(new()) == contract.template_labels(new()) == contract.capacity(new()) == {}

    def test_base_kind_strips_template_suffix_and_rejects_other_kinds(self) -> None:
        assert contract.base_kind("DevMachineTemplate") == "DevMachine"
        for kind in ("DevMachine", "Template"):
            with pytest.raises(ContractError, match="not the kind of a template"):
                contract.base_kind(kind)
