"""What a plan Secret says, read with care: a host writes it."""

from __future__ import annotations

import base64
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent import formats, rules
from remuda.kube.core import Secret
from remuda.kube.objects import ObjectMeta
from remuda.providers.controlplane.plan_secrets import facts, report
from remuda.providers.controlplane.planner.observation import EtcdMember, UnitStatus

PLAN = b'{"probes":{"kubelet":{}}}'
NOW = 1_800_000_000.0


def secret(**data: bytes) -> Secret:
    named = {key.replace("_", "-") if key != "appliedPlan" else key: value for key, value in data.items()}
    return Secret(metadata=ObjectMeta(name="m-machine-plan"), data=named)


def after(state: bytes, *results: dict[str, bytes]) -> Secret:
    data = {"plan": PLAN, "plan-state": state}
    for one in results:
        data |= one
    return Secret(metadata=ObjectMeta(name="m-machine-plan"), data=data)


def test_success_counts_only_for_current_plan() -> None:
    data = {"plan": PLAN, "plan-state": b"in-progress"}
    told = report(after(b"in-progress", rules.succeeded(data, {}, NOW)))
    assert (told.state, told.applied, told.failures) == ("succeeded", PLAN, 0)
    other = report(after(b"succeeded", {"applied-checksum": rules.checksum(b"another").encode()}))
    assert other.state == "failed"
    assert other.applied == b""
    assert "a plan that it was not given" in other.failed_message


def test_failure_is_reported_with_message_and_count() -> None:
    data = {"plan": PLAN, "plan-state": b"in-progress"}
    once = rules.failed(data, {}, NOW, "no space")
    twice = rules.failed({**data, **once}, {}, NOW, "no space left")
    told = report(after(b"failed", once, twice))
    assert (told.state, told.failures, told.failed_message) == ("failed", 2, "no space left")
    asked_again = report(after(b"pending", once, twice, {"plan-state": b"pending"}))
    assert (asked_again.state, asked_again.failures) == ("pending", 2)
    newer = Secret(data={**after(b"pending", once).data, "plan": b"{}", "plan-state": b"pending"})
    assert report(newer).failures == 0


def test_previous_plan_is_applied_plan_until_new_one_succeeds() -> None:
    assert report(secret(plan=PLAN, plan_state=b"pending", appliedPlan=b"{}")).applied == b"{}"


def members(stdout: bytes, code: int = 0) -> bytes:
    record = {"exitCode": code, "stdout": base64.b64encode(stdout).decode()}
    return formats.pack({"etcd-members": record})


def test_etcd_members_are_read_from_periodic_output() -> None:
    listed = {"members": [{"name": "a-1", "address": "10.0.0.1", "learner": True, "healthy": False}]}
    told = report(secret(plan=PLAN, applied_periodic_output=members(json.dumps(listed).encode())))
    assert told.members == (EtcdMember(name="a-1", address="10.0.0.1", learner=True, healthy=False),)
    for bad in (members(b"{}"), members(b"["), members(json.dumps(listed).encode(), 1), b"nonsense"):
        assert report(secret(plan=PLAN, applied_periodic_output=bad)).members is None


def test_gzip_bomb_in_periodic_output_is_not_unpacked() -> None:
    listed = {"members": [{"name": "a-1", "address": "10.0.0.1"}]}
    record = {"exitCode": 0, "stdout": base64.b64encode(json.dumps(listed).encode()).decode()}
    small = formats.pack({"etcd-members": record, "other": "x" * (1 << 20)})
    assert report(secret(plan=PLAN, applied_periodic_output=small)).members is not None
    bomb = formats.pack({"etcd-members": record, "other": "x" * (16 << 20)})
    assert report(secret(plan=PLAN, applied_periodic_output=bomb)).members is None


def test_deeply_nested_probe_statuses_are_ignored() -> None:
    """They ended each reconcile of the cluster by a RecursionError."""
    for nested in (b"[" * 100_000, b'{"a":' * 100_000):
        assert report(secret(plan=PLAN, probe_statuses=nested)).probes == {}


def test_unrelated_periodic_outputs_are_not_decoded() -> None:
    """Empty lists cost three bytes here and sixty decoded."""
    packed = formats.pack({"etcd-members": {"exitCode": 1}, "other": [[] for _ in range(1_000_000)]})
    tracemalloc.start()
    try:
        report(secret(plan=PLAN, applied_periodic_output=packed))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def unit(said: object, code: int = 0) -> Secret:
    record = {"exitCode": code, "stdout": base64.b64encode(json.dumps(said).encode() if said else b"").decode()}
    return secret(plan=PLAN, applied_periodic_output=formats.pack({"unit-status": record}))


def test_inactive_unit_status_is_read_and_bounded() -> None:
    told = report(unit({"unit": "x", "state": "activating", "error": "unknown user etcd"}))
    assert told.unit == UnitStatus("activating", "unknown user etcd")
    hostile = report(unit({"state": "failed", "error": "\x1b[31m\nReady: True\u2028\u202e" + "x" * 100_000})).unit
    assert hostile is not None
    assert hostile.error.isprintable()
    assert len(hostile.error) <= 300


@pytest.mark.parametrize(
    "said", [None, [], {}, {"state": "active"}, {"state": "x" * 5000}, {"state": "failed", "error": {"a": 1}}, "failed"]
)
def test_invalid_unit_status_is_ignored(said: object) -> None:
    assert report(unit(said)).unit is None


def test_failed_unit_status_instruction_is_ignored() -> None:
    assert report(unit({"state": "failed"}, code=1)).unit is None


def test_unit_status_and_members_are_read_together() -> None:
    records = {
        "etcd-members": {"exitCode": 0, "stdout": base64.b64encode(b'{"members": []}').decode()},
        "unit-status": {"exitCode": 0, "stdout": base64.b64encode(b'{"state": "failed"}').decode()},
    }
    told = report(secret(plan=PLAN, applied_periodic_output=formats.pack(records)))
    assert (told.members, told.unit) == ((), UnitStatus("failed"))


def test_changed_unit_error_changes_facts() -> None:
    first, second = ({"state": "failed", "error": error} for error in ("a", "b"))
    assert facts(unit(first)) == facts(unit(first))
    assert facts(unit(first)) != facts(unit(second))


def test_repeated_report_does_not_change_facts() -> None:
    listed = json.dumps({"members": []}).encode()

    def said(at: str) -> Secret:
        record = {"exitCode": 0, "stdout": base64.b64encode(listed).decode(), "lastSuccessfulRunTime": at}
        return secret(plan=PLAN, applied_periodic_output=formats.pack({"etcd-members": record}))

    assert facts(said("then")) == facts(said("now"))
    assert facts(said("now")) != facts(secret(plan=PLAN))


@given(
    st.dictionaries(
        st.sampled_from(sorted([*rules.RESULT_KEYS, "plan", "appliedPlan"])),
        st.one_of(st.binary(max_size=64), st.sampled_from([b"failed", b"succeeded", b"[]", b'{"a":1}', b"1e999"])),
    )
)
def test_arbitrary_secret_data_is_readable(data: dict[str, bytes]) -> None:
    found = report(Secret(data=data))
    assert found.state != "succeeded" or found.applied == found.plan
    facts(Secret(data=data))
