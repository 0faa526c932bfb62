"""Plan Secrets of hosts: parse what hosts report, read plans that caches do not hold, and write plans and requests.

A host writes its results itself, so they are untrusted input: nothing in them can break a reconcile, and a success
counts only for exactly the plan that the host has.

Caches hold only the sha256 of a plan, because plans are large and full of keys. `Plans` keeps the bytes of those used
last, up to a limit, and reads others from the server. Each write is one merge patch with the resourceVersion that was
read, so nothing is delivered to a Secret that has changed since.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.agent import formats, rules
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.core import SECRET, SECRETS, Secret
from remuda.kube.errors import NotFound
from remuda.providers.controlplane.planner.observation import Drain, EtcdMember, PlanReport, PlanState, UnitStatus
from remuda.providers.shared.secrets import APPLIED_PLAN, digest
from remuda.runtime.steps import Step, step

PLAN_LAST_UPDATED = "rke.cattle.io/plan-last-updated"  # annotation: when the plan was delivered

PLAN_SUPERSEDES = "rke.cattle.io/plan-supersedes-unfinished"  # annotation: the plan before it had not succeeded

# Drain handshake: annotations of the plan Secret. All values repeat the request byte for byte.
DRAIN_REQUEST = "rke.cattle.io/drain-options"
PRE_DRAIN = "rke.cattle.io/pre-drain"
DRAIN_DONE = "rke.cattle.io/drain-done"
UNCORDON_REQUEST = "rke.cattle.io/uncordon"
POST_DRAIN = "rke.cattle.io/post-drain"
DRAIN_ERROR = "rke.cattle.io/drain-error"

ETCD_MEMBERS = "etcd-members"  # periodic instruction that reports the members of etcd

UNIT_STATUS = "unit-status"  # periodic instruction that reports a unit that is not active

_MOST_MESSAGE = 2000
_MOST_ERROR = 300
_MOST_OUTPUT = 8 << 20  # bytes of periodic output, unpacked; an agent keeps 512 KiB of each instruction
_MOST_MEMBERS = 64
_STATES: Mapping[str, PlanState] = {
    rules.PENDING: "pending",
    rules.IN_PROGRESS: "in-progress",
    rules.SUCCEEDED: "succeeded",
    rules.FAILED: "failed",
}
MOST_BYTES = 64 << 20

_PLANS = (rules.PLAN, APPLIED_PLAN)
DELIVER = step("rkecontrolplane.deliver-plan", "delivers a new plan to a host")
RUN_AGAIN = step("rkecontrolplane.run-again", "asks a host to retry its plan")
REQUEST_DRAIN = step("rkecontrolplane.request-drain", "requests the drain of a node before its plan changes")
REQUEST_UNCORDON = step("rkecontrolplane.request-uncordon", "requests the uncordon of a node")

# Results of the previous plan. Results of periodic instructions stay valid: a new plan changes no etcd member.
_OUTDATED = (rules.PROBES, rules.FAILURES, rules.FAILED_CHECKSUM, rules.FAILED_OUTPUT, rules.FAILED_MESSAGE)


def report(secret: Secret) -> PlanReport:
    """Parse a complete plan Secret (`plans.Plans.whole`) into a report."""
    data = secret.data
    plan, outputs = data.get(rules.PLAN, b""), _outputs(data)
    found = PlanReport(
        secret=secret.metadata.name,
        plan=plan,
        delivered=_time(secret.metadata.annotations.get(PLAN_LAST_UPDATED, "")),
        state=_STATES.get(rules.text(data, rules.STATE), ""),
        applied=data.get(APPLIED_PLAN, b""),
        superseded=PLAN_SUPERSEDES in secret.metadata.annotations,
        last_apply=formats.seconds_of(rules.text(data, rules.LAST_APPLY)),
        probes={name: bool(status.get("healthy")) for name, status in _probes(data).items()},
        members=_members(outputs),
        unit=_unit(outputs),
    )
    if not plan:
        return msgspec.structs.replace(found, state="", applied=b"")  # nothing was asked: no success of it counts
    checksum = rules.checksum(plan)
    failed = found.state == "failed"
    if failed or rules.text(data, rules.FAILED_CHECKSUM) == checksum:
        found = msgspec.structs.replace(
            found,
            failures=max(int(failed), rules.number(data, rules.FAILURES, 0)),
            failed_message=rules.text(data, rules.FAILED_MESSAGE)[:_MOST_MESSAGE],
        )
    if found.state != "succeeded":
        return found
    # Results are matched by checksum. Rancher's agent orders resource versions instead, and a stale read or a restored
    # Secret then blocks it (rancher/rancher#54334).
    if rules.text(data, rules.APPLIED_CHECKSUM) == checksum:
        return msgspec.structs.replace(found, applied=plan)
    return msgspec.structs.replace(
        found, state="failed", failures=1, failed_message="the host reports the success of a plan that it was not given"
    )


def drain(secret: Secret) -> Drain:
    said = secret.metadata.annotations
    return Drain(
        requested=said.get(DRAIN_REQUEST, ""),
        done=said.get(DRAIN_DONE, ""),
        uncordon=said.get(UNCORDON_REQUEST, ""),
        error=said.get(DRAIN_ERROR, ""),
    )


def facts(secret: Secret) -> object:
    """Return the parts of a plan Secret that the planner depends on: all that hosts report except outputs and times."""
    data, outputs = secret.data, _outputs(secret.data)
    kept = {key: value for key, value in data.items() if key != rules.PERIODIC_OUTPUT}
    return kept, _members(outputs), _unit(outputs), secret.metadata.annotations, secret.metadata.deleting


def _probes(data: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    return {str(name): one for name, one in rules.probe_statuses(data).items() if isinstance(one, dict)}


def unit_status(data: Mapping[str, bytes]) -> UnitStatus | None:
    """Return the unit's status from a plan Secret; None: it is active, or unknown."""
    return _unit(_outputs(data))


class _Outputs(msgspec.Struct):
    """Outputs of periodic instructions. All but the records that are read stay undecoded, because a host could write
    a few bytes that decode to millions of objects."""

    etcd_members: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name=ETCD_MEMBERS)
    unit_status: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name=UNIT_STATUS)


class _Output(msgspec.Struct, rename="camel"):
    exit_code: int | None = None
    stdout: str | None = None  # base64


class _MembersOutput(msgspec.Struct):
    members: list[msgspec.Raw]


class _UnitOutput(msgspec.Struct):
    state: Literal["activating", "deactivating", "inactive", "failed", "maintenance"]
    error: str = ""


def _outputs(data: Mapping[str, bytes]) -> _Outputs:
    try:
        return msgspec.json.decode(formats.inflate(data.get(rules.PERIODIC_OUTPUT, b""), _MOST_OUTPUT), type=_Outputs)
    except (ValueError, RecursionError):  # of a damaged gzip and of msgspec
        return _Outputs()


def _stdout(record: msgspec.Raw) -> bytes:
    """Raises ValueError."""
    found = msgspec.json.decode(record, type=_Output)
    if found.exit_code != 0:
        raise ValueError("the instruction has failed")
    return base64.b64decode(found.stdout or "")


def _unit(outputs: _Outputs) -> UnitStatus | None:
    """The host tool has made one short line of the error; a hostile host need not."""
    try:
        said = msgspec.json.decode(_stdout(outputs.unit_status), type=_UnitOutput)
    except (ValueError, RecursionError):
        return None
    error = said.error[:_MOST_ERROR]
    return UnitStatus(said.state, "".join(sign if sign.isprintable() else " " for sign in error).strip())


def _members(outputs: _Outputs) -> Sequence[EtcdMember] | None:
    try:
        said = msgspec.json.decode(_stdout(outputs.etcd_members), type=_MembersOutput)
        if len(said.members) > _MOST_MEMBERS:
            return None
        return tuple(msgspec.json.decode(one, type=EtcdMember) for one in said.members)
    except (ValueError, RecursionError):  # of base64 and of msgspec
        return None


def _time(text: str) -> float | None:
    try:
        return clock.parse(text) if text else None
    except ValueError:
        return None


# ---- whole Secrets ------------------------------------------------------------------------------------------------


class Plans:
    def __init__(self, client: Client, most_bytes: int = MOST_BYTES) -> None:
        self._client = client
        self._most = most_bytes
        self._held = 0
        self._plans: OrderedDict[bytes, bytes] = OrderedDict()  # by digest, the one used longest ago first

    async def whole(self, cached: Secret) -> Secret | None:
        """Return the Secret with its plans; read from the server if a plan is not in memory. None: it is deleted."""
        found: dict[str, bytes] = {}
        for key in _PLANS:
            if cached.data.get(key):
                plan = self._get(cached.data[key])
                if plan is None:
                    return await self._read(cached)
                found[key] = plan
        return msgspec.structs.replace(cached, data={**cached.data, **found})

    async def _read(self, cached: Secret) -> Secret | None:
        try:
            secret = SECRET.decode(await self._client.get(SECRET.target, *cached.key))
        except NotFound:
            return None
        if secret.metadata.uid != cached.metadata.uid:
            return None  # another Secret of the same name, which has its own event
        for key in _PLANS:
            if secret.data.get(key):
                self.keep(secret.data[key])
        return secret

    def keep(self, plan: bytes) -> None:
        mark = digest(plan)
        if mark in self._plans:
            self._plans.move_to_end(mark)
            return
        self._plans[mark] = plan
        self._held += len(plan)
        while self._held > self._most and len(self._plans) > 1:
            _, dropped = self._plans.popitem(last=False)
            self._held -= len(dropped)

    def _get(self, mark: bytes) -> bytes | None:
        plan = self._plans.get(mark)
        if plan is not None:
            self._plans.move_to_end(mark)
        return plan


# ---- writes -------------------------------------------------------------------------------------------------------


async def deliver(client: Client, plans: Plans, secret: Secret, plan: bytes) -> None:
    """`secret` as a whole. The plan that had succeeded is kept beside the new one."""
    # One patch for plan, state and old results: a host must never see a new plan with the result of the old one.
    data: dict[str, Any] = dict.fromkeys(_OUTDATED)
    data[rules.PLAN] = _base64(plan)
    data[rules.STATE] = _base64(rules.PENDING.encode())
    before = report(secret)
    if before.applied:
        data[APPLIED_PLAN] = _base64(before.applied)
    plans.keep(plan)
    unfinished = before.plan and before.state != "succeeded"
    notes = {PLAN_LAST_UPDATED: clock.now(), PLAN_SUPERSEDES: "true" if unfinished else None}
    await _patch(client, secret, DELIVER, notes, data)


async def run_again(client: Client, secret: Secret) -> None:
    await _patch(client, secret, RUN_AGAIN, {}, {rules.STATE: _base64(rules.PENDING.encode())})


async def request_drain(client: Client, secret: Secret, options: str) -> None:
    """Request a drain, and clear the annotations of an earlier request, lest they pass for this one's answer."""
    stale = dict.fromkeys((DRAIN_DONE, UNCORDON_REQUEST, DRAIN_ERROR))
    await _patch(client, secret, REQUEST_DRAIN, {**stale, DRAIN_REQUEST: options}, {})


async def request_uncordon(client: Client, secret: Secret, options: str) -> None:
    await _patch(client, secret, REQUEST_UNCORDON, {UNCORDON_REQUEST: options}, {})


async def _patch(client: Client, secret: Secret, named: Step, notes: dict[str, str | None], data: Any) -> None:
    patch: dict[str, Any] = {"metadata": {"resourceVersion": secret.metadata.resource_version}}
    if notes:
        patch["metadata"]["annotations"] = notes
    if data:
        patch["data"] = data
    async with named:
        await client.patch(SECRETS, *secret.key, patch)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
