"""What nodes write into their plan Secrets, as the manager reads it: results, probes, members of etcd."""

from __future__ import annotations

import base64
import json
from typing import Any

from remuda.agent import formats, rules
from remuda.kube.core import SECRET
from remuda.providers.controlplane import plan_secrets
from tests.fuzz.source import Source

_NAMES = (
    *("members", "id", "name", "peerURLs", "clientURLs", "isLearner", "healthy", "etcd-members", "exitCode", "stdout"),
    *("unit-status", "state", "error", "calico", "successCount", "failureCount", "voter", "x"),
)
_KEYS = (
    *(rules.STATE, rules.APPLIED_CHECKSUM, rules.FAILED_CHECKSUM, rules.FAILURES, rules.FAILED_MESSAGE),
    *(rules.LAST_APPLY, rules.PLAN, "appliedPlan"),
)
_STATES = (rules.PENDING, rules.IN_PROGRESS, rules.SUCCEEDED, rules.FAILED, "")


def check(data: bytes) -> None:
    """Raise if anything that a node writes makes the manager fail, or makes it believe a success of another plan."""
    source = Source(data)
    secret = {key: source.text().encode() for key in _KEYS if source.flag()}
    if source.flag():
        secret[rules.STATE] = source.pick(_STATES).encode()
    if source.flag() and rules.PLAN in secret:
        secret[rules.APPLIED_CHECKSUM] = rules.checksum(secret[rules.PLAN]).encode()
    secret[rules.PROBES] = _json(source) if source.flag() else source.take(source.byte())
    secret[rules.PERIODIC_OUTPUT] = _outputs(source)
    document = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "plan",
                "namespace": "a",
                "annotations": {
                    plan_secrets.PLAN_LAST_UPDATED: source.text(),
                    plan_secrets.DRAIN_REQUEST: source.text(),
                },
            },
            "data": {key: base64.b64encode(value).decode() for key, value in secret.items()},
        }
    )
    found = SECRET.decode(document.encode())
    said = plan_secrets.report(found)
    assert len(said.failed_message) <= 2000
    assert said.members is None or len(said.members) <= 64
    assert said.unit is None or (len(said.unit.error) <= 300 and said.unit.error.isprintable())
    if said.state == "succeeded":
        assert secret[rules.APPLIED_CHECKSUM].decode() == rules.checksum(secret[rules.PLAN])
    plan_secrets.drain(found)
    plan_secrets.facts(found)


def _json(source: Source) -> bytes:
    return json.dumps(source.json(_NAMES)).encode()


def _outputs(source: Source) -> bytes:
    form = source.byte() % 4
    if form == 0:
        return source.take(source.byte())
    members: Any = (
        source.json(_NAMES) if form == 1 else {"members": [_member(source) for _ in range(source.byte() % 80)]}
    )
    record = {
        "exitCode": source.pick((0, 0, 1, None, "x")),
        "stdout": base64.b64encode(json.dumps(members).encode()).decode(),
    }
    name = source.pick((plan_secrets.ETCD_MEMBERS, plan_secrets.UNIT_STATUS))
    return formats.pack({name: record if form < 3 else source.json(_NAMES)})


def _member(source: Source) -> Any:
    return {"id": source.text(), "name": source.text(), **source.object(_NAMES, 2)} if source.flag() else source.json()
