"""When there is nothing to do, nothing is sent; when there is, exactly then."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.client import Client, Target
from remuda.kube.objects import OwnerReference
from remuda.provisioning import apply
from remuda.runtime.steps import step

Json = dict[str, Any]

OWNER = OwnerReference(api_version="v1", kind="K", name="n", uid="u", controller=True)
WANTED: Json = {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"n": 1, "list": [{"k": "v"}], "on": False}}
APPLY = step("test.apply", "for the test")
TARGET = Target("v1", "things")

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda below: st.one_of(st.lists(below, max_size=2), st.dictionaries(st.text(max_size=2), below, max_size=2)),
    max_leaves=6,
)


def applied(**free: Any) -> Json:
    return apply.prepared(WANTED, [OWNER], **free)


def test_additional_fields_do_not_require_apply() -> None:
    wanted = applied()
    present = msgspec.json.decode(msgspec.json.encode(wanted))
    present["metadata"] |= {"uid": "1", "finalizers": ["f"]}
    present["metadata"]["labels"]["mine"] = "yes"
    present["metadata"]["ownerReferences"].insert(0, {"uid": "other"})
    present["spec"] |= {"default": 1}
    present["spec"]["list"][0]["filled"] = "in"
    assert apply.is_applied(present, wanted)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda obj: obj["spec"].update(n=2),
        lambda obj: obj["spec"].update(on=0),
        lambda obj: obj["spec"].pop("n"),
        lambda obj: obj["spec"]["list"].append({}),
        lambda obj: obj["metadata"].pop("ownerReferences"),
        lambda obj: obj["metadata"]["labels"].clear(),
        lambda obj: obj["metadata"]["annotations"].update({apply.APPLIED: "another"}),
    ],
)
def test_changed_fields_require_apply(spoil: Any) -> None:
    wanted = applied()
    present = msgspec.json.decode(msgspec.json.encode(wanted))
    spoil(present)
    assert not apply.is_applied(present, wanted)


def test_removed_field_is_detected_by_digest() -> None:
    more = {**WANTED, "spec": {**WANTED["spec"], "extra": 1}}
    assert not apply.is_applied(apply.prepared(more, [OWNER]), applied())


def test_free_fields_are_excluded_from_digest() -> None:
    changed = {**WANTED, "spec": {**WANTED["spec"], "n": 7}}

    def digest(obj: Json, free: tuple[str, ...]) -> str:
        return str(apply.prepared(obj, free=free)["metadata"]["annotations"][apply.APPLIED])

    assert digest(WANTED, ("n",)) == digest(changed, ("n",))
    assert digest(WANTED, ()) != digest(changed, ())


@given(st.dictionaries(st.text(max_size=2), VALUES, max_size=3))
def test_prepared_object_is_applied_to_itself(spec: Json) -> None:
    wanted = apply.prepared({"metadata": {"name": "x"}, "spec": spec})
    assert apply.is_applied(msgspec.json.decode(msgspec.json.encode(wanted)), wanted)


class RecordingClient:
    def __init__(self) -> None:
        self.sent: list[Json] = []

    async def patch(self, target: Target, namespace: str, name: str, patch: Any, **options: Any) -> bytes:
        assert options == {"kind": "apply", "field_manager": apply.FIELD_MANAGER, "force": True}
        self.sent.append(patch)
        return msgspec.json.encode(patch)


async def test_unchanged_object_is_not_sent() -> None:
    client = RecordingClient()
    made = await apply.apply(cast(Client, client), TARGET, "ns", None, applied(), APPLY)
    assert len(client.sent) == 1
    assert await apply.apply(cast(Client, client), TARGET, "ns", made, applied(), APPLY) is made
    assert len(client.sent) == 1


async def test_emptied_map_is_removed_before_apply() -> None:
    """kube-apiserver makes null of it otherwise, and refuses that."""
    client = RecordingClient()
    full = apply.prepared({"metadata": {"name": "x"}, "spec": {"map": {"a": 1}, "kept": {}}})
    made = await apply.apply(cast(Client, client), TARGET, "ns", None, full, APPLY)
    empty = apply.prepared({"metadata": {"name": "x"}, "spec": {"map": {}, "kept": {}}})
    await apply.apply(cast(Client, client), TARGET, "ns", made, empty, APPLY)
    assert [sent["spec"] for sent in client.sent] == [
        {"map": {"a": 1}, "kept": {}},
        {"kept": {}},
        {"map": {}, "kept": {}},
    ]
