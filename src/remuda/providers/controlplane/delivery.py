"""Write to the plan Secrets of hosts: plans, requests to run a plan again, and requests to the drainer.

Each write is one merge patch with the resourceVersion that was read, so nothing is delivered to a Secret that has
changed since.
"""

from __future__ import annotations

import base64
from typing import Any

from remuda.agent import rules
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.core import SECRETS, Secret
from remuda.providers.controlplane import report
from remuda.providers.controlplane.plans import Plans
from remuda.providers.shared.secrets import APPLIED_PLAN
from remuda.runtime.steps import Step, step

DELIVER = step("rkecontrolplane.deliver-plan", "gives a host a new plan")
RUN_AGAIN = step("rkecontrolplane.run-again", "asks a host to apply its plan once more")
REQUEST_DRAIN = step("rkecontrolplane.request-drain", "asks for a node to be drained before its plan changes")
REQUEST_UNCORDON = step("rkecontrolplane.request-uncordon", "asks for a node to take Pods again")

# Results of the plan before; those of periodic instructions stay: the members of etcd are still who they are.
_OUTDATED = (rules.PROBES, rules.FAILURES, rules.FAILED_CHECKSUM, rules.FAILED_OUTPUT, rules.FAILED_MESSAGE)


async def deliver(client: Client, plans: Plans, secret: Secret, plan: bytes) -> None:
    """`secret` as a whole. The plan that had succeeded is kept beside the new one."""
    data: dict[str, Any] = dict.fromkeys(_OUTDATED)
    data[rules.PLAN] = _encoded(plan)
    data[rules.STATE] = _encoded(rules.PENDING.encode())
    before = report.report(secret)
    if before.applied:
        data[APPLIED_PLAN] = _encoded(before.applied)
    plans.keep(plan)
    unfinished = before.plan and before.state != "succeeded"
    notes = {report.PLAN_LAST_UPDATED: clock.now(), report.PLAN_SUPERSEDES: "true" if unfinished else None}
    await _patch(client, secret, DELIVER, notes, data)


async def run_again(client: Client, secret: Secret) -> None:
    await _patch(client, secret, RUN_AGAIN, {}, {rules.STATE: _encoded(rules.PENDING.encode())})


async def request_drain(client: Client, secret: Secret, options: str) -> None:
    """Request a drain, and clear the annotations of an earlier request, lest they pass for this one's answer."""
    stale = dict.fromkeys((report.DRAIN_DONE, report.UNCORDON_REQUEST, report.DRAIN_ERROR))
    await _patch(client, secret, REQUEST_DRAIN, {**stale, report.DRAIN_REQUEST: options}, {})


async def request_uncordon(client: Client, secret: Secret, options: str) -> None:
    await _patch(client, secret, REQUEST_UNCORDON, {report.UNCORDON_REQUEST: options}, {})


async def _patch(client: Client, secret: Secret, named: Step, notes: dict[str, str | None], data: Any) -> None:
    patch: dict[str, Any] = {"metadata": {"resourceVersion": secret.metadata.resource_version}}
    if notes:
        patch["metadata"]["annotations"] = notes
    if data:
        patch["data"] = data
    async with named:
        await client.patch(SECRETS, *secret.key, patch)


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
