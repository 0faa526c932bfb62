"""Guard of plan Secrets: a host may write the results of plans and nothing else, so no node can promote itself. Pure.

Agents write the whole Secret back, so RBAC cannot tell a result from a role. Admission can: it reverts all changes of a
host's own account except results. The results of such a write are kept, so that no report is lost. An annotation that
the host cannot write records the attempt, and the RKEBootstrap controller reports it. Other users may change the Secret
as RBAC permits.

The account is recognised by its name, which is that of the Secret (`providers.names.plan_secret`). On Kubernetes the
API server applies the same rule before it calls the webhook, so no other Secret depends on the webhook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from remuda.agent.rules import RESULT_KEYS
from remuda.kube.admission import ALLOWED, AdmissionRegistration, AdmissionResult, Review
from remuda.kube.core import SECRET
from remuda.kube.patches import create_merge_patch
from remuda.providers.shared import names
from remuda.runtime.webhooks import Webhook

REFUSED = "remuda.dev/refused-changes"  # annotation: `RefusedWrite`, as JSON

_NOTE = f"metadata.annotations[{REFUSED}]"
_GUARDED_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_MOST_FIELDS = 10  # that are named
_LONGEST_FIELD = 200

Json = dict[str, Any]


class RefusedWrite(msgspec.Struct, frozen=True):
    """Denied writes of a host: how often it has tried, and which fields it tried to change the last time."""

    times: int = 0
    fields: Sequence[str] = ()

    def __str__(self) -> str:
        often = "once" if self.times == 1 else f"{self.times} times"
        return f"the host tried {often} to change foreign fields of its plan Secret, last {', '.join(self.fields)}"


def refused(annotations: Mapping[str, str]) -> RefusedWrite | None:
    """Return the denied writes recorded in the annotation; None without the annotation."""
    text = annotations.get(REFUSED)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=RefusedWrite)
    except msgspec.MsgspecError:
        return RefusedWrite(1, (_NOTE,))


def admit(review: Review) -> AdmissionResult:
    old, new = review.old, review.new
    if review.user != f"system:serviceaccount:{review.namespace}:{review.name}" or old is None or new is None:
        return ALLOWED
    if old.get("type") != names.PLAN_TYPE or review.subresource:
        return ALLOWED
    kept = _kept(old, new)
    changes = list(_changes(kept, new))
    if not changes:
        return ALLOWED
    times = (refused(_annotations(old)) or RefusedWrite()).times + 1
    noted = refused(_annotations(new))
    # This function both patches and validates, so it sees its own patch: that must not count as another attempt.
    if changes == [_NOTE] and noted is not None and noted.times == times and noted.fields:
        return AdmissionResult(
            warnings=(_told(noted.fields),)
        )  # as this function has left it, in the call before this one
    noted = RefusedWrite(times, tuple(_named(changes)))
    return AdmissionResult(patch=create_merge_patch(new, _with_note(kept, noted)), warnings=(_told(noted.fields),))


FUNCTIONS: list[AdmissionRegistration] = [AdmissionRegistration("", SECRET.plural, admit, ("UPDATE",))]

WEBHOOKS: list[Webhook] = [
    Webhook(
        kind=SECRET.name,
        target=SECRET.target,
        function=admit,
        operations=("UPDATE",),
        only="request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':' + request.name",
    )
]


def _kept(old: Json, new: Json) -> Json:
    """Return the new object with all fields of the old one that a host may not change. The server maintains its own
    fields of metadata.
    """
    metadata = {name: value for name, value in new["metadata"].items() if name not in _GUARDED_METADATA}
    metadata.update({name: value for name, value in old["metadata"].items() if name in _GUARDED_METADATA})
    data = {name: value for name, value in (old.get("data") or {}).items() if name not in RESULT_KEYS}
    data.update({name: value for name, value in (new.get("data") or {}).items() if name in RESULT_KEYS})
    kept = {**old, "metadata": metadata}
    kept.pop("data", None)
    if data or "data" in new:
        kept["data"] = data
    return kept


def _with_note(kept: Json, noted: RefusedWrite) -> Json:
    annotations = {**_annotations(kept), REFUSED: msgspec.json.encode(noted).decode()}
    return {**kept, "metadata": {**kept["metadata"], "annotations": annotations}}


def _annotations(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _changes(kept: Json, new: Json) -> Iterator[str]:
    for part in _GUARDED_METADATA:
        yield from _differences(f"metadata.{part}", kept["metadata"].get(part), new["metadata"].get(part))
    yield from _differences("data", kept.get("data"), new.get("data"))
    for name in sorted(({*kept} | {*new}) - {"metadata", "data"}):
        if kept.get(name) != new.get(name):
            yield name


def _differences(path: str, kept: Any, new: Any) -> Iterator[str]:
    kept, new = kept or {}, new or {}
    if isinstance(kept, dict) and isinstance(new, dict):
        for name in sorted({*kept} | {*new}):
            if kept.get(name) != new.get(name):
                yield f"{path}[{name}]"
    elif kept != new:
        yield path


def _named(fields: Sequence[str]) -> list[str]:
    """Return the names of added fields, limited in number and length, because a host chooses them."""
    found = [field[:_LONGEST_FIELD] for field in fields]
    more = len(found) - _MOST_FIELDS
    return [*found[:_MOST_FIELDS], f"and {more} more"] if more > 0 else found


def _told(fields: Sequence[str]) -> str:
    return f"hosts may write only results here: {', '.join(fields)} stays unchanged, and the attempt is reported"
