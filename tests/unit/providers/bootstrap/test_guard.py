"""What a host may write of its plan Secret."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from remuda.agent.rules import RESULT_KEYS
from remuda.kube.admission import ALLOWED, AdmissionResult, Review
from remuda.kube.patches import apply_merge_patch
from remuda.providers.bootstrap.guard import REFUSED, admit, refused
from remuda.providers.shared import names

Json = dict[str, Any]

OLD: Json = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": names.PLAN_TYPE,
    "metadata": {
        "name": "b-machine-plan",
        "namespace": "ns",
        "resourceVersion": "7",
        "labels": {names.WORKER_ROLE: "true"},
        "ownerReferences": [{"kind": "RKEBootstrap", "uid": "1"}],
    },
    "data": {"plan": "cGxhbg==", "max-failures": "NQ==", "applied-checksum": "eA=="},
}
ACCOUNT = "system:serviceaccount:ns:b-machine-plan"


def judged(new: Json, old: Json = OLD, user: str = ACCOUNT) -> AdmissionResult:
    return admit(
        Review(
            operation="UPDATE",
            group="",
            version="v1",
            kind="Secret",
            resource="secrets",
            namespace="ns",
            name="b-machine-plan",
            user=user,
            lookup=lambda *_: None,
            old=deepcopy(old),
            new=deepcopy(new),
        )
    )


def changed(**parts: Any) -> Json:
    return apply_merge_patch(deepcopy(OLD), parts)


def stored(new: Json, old: Json = OLD) -> Json:
    verdict = judged(new, old)
    return new if verdict.patch is None else apply_merge_patch(deepcopy(new), verdict.patch)


@pytest.mark.parametrize("key", sorted(RESULT_KEYS))
def test_host_may_write_result_keys(key: str) -> None:
    assert judged(changed(data={key: "bmV3"})) == ALLOWED
    assert judged(OLD, changed(data={key: "bmV3"})) == ALLOWED


def test_unchanged_secret_write_is_allowed() -> None:
    assert judged(changed(metadata={"resourceVersion": "8", "managedFields": [{"manager": "agent"}]})) == ALLOWED


HOSTILE: list[tuple[Json, str]] = [
    ({"metadata": {"labels": {names.ETCD_ROLE: "true"}}}, f"metadata.labels[{names.ETCD_ROLE}]"),
    ({"metadata": {"labels": {names.INIT_NODE: "true"}}}, f"metadata.labels[{names.INIT_NODE}]"),
    ({"metadata": {"labels": {names.WORKER_ROLE: None}}}, f"metadata.labels[{names.WORKER_ROLE}]"),
    ({"metadata": {"annotations": {"rke.cattle.io/join-url": "https://me"}}}, "rke.cattle.io/join-url"),
    ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences"),
    ({"metadata": {"finalizers": ["mine/stay"]}}, "metadata.finalizers"),
    ({"data": {"plan": "bWluZQ=="}}, "data[plan]"),
    ({"data": {"plan": None}}, "data[plan]"),
    ({"data": {"max-failures": "LTE="}}, "data[max-failures]"),
    ({"data": {"appliedPlan": "cGxhbg=="}}, "data[appliedPlan]"),
    ({"data": {"something": "ZWxzZQ=="}}, "data[something]"),
    ({"immutable": True}, "immutable"),
    ({"stringData": {"plan": "mine"}}, "stringData"),
]


@pytest.mark.parametrize(("change", "field"), HOSTILE, ids=[field for _, field in HOSTILE])
def test_forbidden_changes_are_reverted_and_recorded_while_results_are_kept(change: Json, field: str) -> None:
    new = apply_merge_patch(changed(data={"failure-count": "Mg=="}), change)
    found = stored(new)
    note = found["metadata"]["annotations"].pop(REFUSED)
    found["metadata"]["annotations"] or found["metadata"].pop("annotations")
    assert found == changed(data={"failure-count": "Mg=="})
    assert field in refused({REFUSED: note}).fields[0]  # type: ignore[union-attr]
    assert field in judged(new).warnings[0]


def test_refused_attempts_are_counted_and_record_cannot_be_removed() -> None:
    once = stored(changed(data={"plan": "bWluZQ=="}))
    hidden = apply_merge_patch(deepcopy(once), {"metadata": {"annotations": None}})
    twice = stored(hidden, once)
    said = refused(twice["metadata"]["annotations"])
    assert said is not None
    assert said.times == 2
    assert "tried 2 times" in str(said)


def test_validating_call_accepts_record_of_mutating_call() -> None:
    """On Kubernetes a mutating call comes first; the validating one sees what it has left."""
    noted = stored(changed(data={"plan": "bWluZQ=="}))
    verdict = judged(noted)
    assert (verdict.patch, verdict.denied, verdict.errors) == (None, "", ())
    assert "data[plan]" in verdict.warnings[0]


@pytest.mark.parametrize(
    "user", ["admin", "system:serviceaccount:other:b-machine-plan", "system:serviceaccount:ns:b-machine-planner"]
)
def test_writes_of_other_users_are_ignored(user: str) -> None:
    assert judged(changed(data={"plan": "bWluZQ=="}), user=user) == ALLOWED


def test_secrets_of_other_types_are_ignored() -> None:
    old = {**OLD, "type": "Opaque"}
    assert judged({**changed(data={"plan": "bWluZQ=="}), "type": "Opaque"}, old) == ALLOWED


def test_refusal_record_size_is_bounded() -> None:
    labels = {f"{'x' * 60}{number}": "y" * 60 for number in range(5000)}
    found = stored(changed(metadata={"labels": labels}))
    assert len(found["metadata"]["annotations"][REFUSED]) < 3000
    assert "4990 more" in found["metadata"]["annotations"][REFUSED]


texts = some.dictionaries(some.text(max_size=5), some.text(max_size=5), max_size=3)


@given(labels=texts, annotations=texts, data=texts, immutable=some.booleans())
def test_guarded_fields_survive_arbitrary_writes(
    labels: dict[str, str], annotations: dict[str, str], data: dict[str, str], immutable: bool
) -> None:
    new = deepcopy(OLD)
    new["metadata"] |= {"labels": labels, "annotations": annotations}
    new |= {"data": data, "immutable": immutable}
    found = stored(new)
    noted = found["metadata"].get("annotations", {}).pop(REFUSED, None)
    assert noted is None or msgspec.json.decode(noted)["times"] == 1
    assert found["metadata"]["labels"] == OLD["metadata"]["labels"]
    assert not found["metadata"].get("annotations")
    assert {k: v for k, v in found["data"].items() if k not in RESULT_KEYS} == {
        "plan": "cGxhbg==",
        "max-failures": "NQ==",
    }
    assert not found.get("immutable")
