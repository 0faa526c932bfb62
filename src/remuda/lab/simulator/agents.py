"""Model agents: each follows the Machine Plan Secret of one server, thousands of them in one process.

An agent applies a plan by the rules of the real one (`remuda.agent.rules`), but an `AgentHost`, which stands for the
server, provides the results of commands and probes. After a restart, it applies its plan once more. The real agent does
not, but other existing agents do, so the controllers must handle both. An agent writes only changes, and at most once
per pass. Agents have a separate manager: they read whole Secrets, which no cache of a management program should hold.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Protocol

from remuda.agent import formats, rules
from remuda.agent.plan import Instruction, Plan, parse
from remuda.agent.rules import Result
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Requeue
from remuda.runtime.steps import step

REPORT = step("simulatedagent.report", "an agent writes the result of its plan")

SECRET_TYPE = "rke.cattle.io/machine-plan"  # noqa: S105
_CONCURRENCY = 100


class EncodedSecret(Object):
    """Secret with its values still encoded."""

    type: str = ""
    data: Mapping[str, str] = {}


SECRET = Kind("v1", "Secret", "secrets", EncodedSecret)
SECRETS = Target("v1", "secrets")


class AgentHost(Protocol):
    """Server behind an agent, by the key of its Secret."""

    def seconds(self, agent: Key, plan: Plan) -> float:
        """Return how long applying the plan takes."""

    def run(self, agent: Key, instruction: Instruction, attempt: int) -> Result: ...

    def well(self, agent: Key, probe: str) -> bool: ...


class InstantHost:
    """Server on which everything succeeds at once."""

    def seconds(self, agent: Key, plan: Plan) -> float:
        return 0.0

    def run(self, agent: Key, instruction: Instruction, attempt: int) -> Result:
        return Result()

    def well(self, agent: Key, probe: str) -> bool:
        return True


class _Pass:
    """Pass over one Secret: its content, and the changes to write."""

    def __init__(self, secret: EncodedSecret) -> None:
        self.secret = secret
        self.key = secret.key
        self.now = clock.time()
        self.data = {name: base64.b64decode(text) for name, text in secret.data.items()}
        self.changes: dict[str, bytes] = {}
        self.waits: list[float] = []


class Agents:
    """Model agents. `restart` simulates an agent whose process ended: its next pass applies the plan once more. An
    agent that does not `listen` neither reads nor writes anything, until `look` is called. `label_selector`: which
    Secrets are cached.
    """

    def __init__(
        self,
        manager: Manager,
        machinery: AgentHost,
        listens: Callable[[Key], bool] = lambda agent: True,
        *,
        label_selector: str = "",
    ) -> None:
        self._client = manager.client
        self._listens = listens
        self._machinery = machinery
        self._informer = manager.caches.of(SECRET, label_selector=label_selector)
        self._seen: set[str] = set()
        # records of periodic instructions by uid, with the plan they belong to
        self._records: dict[str, tuple[str, formats.Json]] = {}
        # time at which the application of a plan, by its checksum, will be done
        self._until: dict[tuple[str, str], float] = {}
        self._controller = manager.controller(
            "simulatedagent", SECRET, self.reconcile, concurrency=_CONCURRENCY, informer=self._informer
        )

    def restart(self, agent: Key) -> None:
        secret = self._informer.get(*agent)
        if secret is not None:
            self._seen.discard(secret.metadata.uid)
            self._records.pop(secret.metadata.uid, None)
            self._controller.enqueue(agent)

    def look(self, agent: Key) -> None:
        """Process an agent because its server has changed."""
        self._controller.enqueue(agent)

    async def reconcile(self, key: Key) -> Outcome:
        secret = self._informer.get(*key)
        if not self._listens(key) or secret is None or secret.type != SECRET_TYPE or "plan" not in secret.data:
            return DONE
        work = _Pass(secret)
        plan = parse(work.data["plan"])
        applied = self._apply(work, plan)
        if work.secret.metadata.uid in self._seen:
            self._run_periodic(work, plan, applied)
            self._probe(work, plan)
        await self._report(work)
        return (
            Requeue(min(work.waits), "waiting until the plan's next periodic instruction or probe is due")
            if work.waits
            else DONE
        )

    def _apply(self, work: _Pass, plan: Plan) -> bool:
        """Run the one-time instructions if they are due; return whether they ran now."""
        uid = work.secret.metadata.uid
        verdict = rules.verdict(work.data, work.now)
        if verdict.claim:
            work.changes |= rules.claimed(work.data)
            return False
        if work.data.get(rules.STATE):
            # With plan-state, an agent that was restarted does not repeat its plan: the manager requests each run.
            self._seen.add(uid)
        again = uid not in self._seen
        if not verdict.apply and not again:
            if verdict.seconds is not None:
                work.waits.append(verdict.seconds)
            return False
        mark = (uid, rules.checksum(work.data["plan"]))
        until = self._until.setdefault(mark, work.now + self._machinery.seconds(work.key, plan))
        if until > work.now:
            work.waits.append(until - work.now)
            return False
        del self._until[mark]
        self._seen.add(uid)
        self._run(work, plan, verdict.attempt)
        return True

    def _run(self, work: _Pass, plan: Plan, attempt: int) -> None:
        outputs: dict[str, bytes] = {}
        for instruction in plan.instructions:
            result = self._machinery.run(work.key, instruction, attempt)
            if instruction.save_output and instruction.name:
                outputs[instruction.name] = result.stdout
            if result.exit_code:
                said = result.stderr.decode("utf-8", "replace")
                message = f"{instruction.name} ended with exit code {result.exit_code}: {said}"
                work.changes |= rules.failed(work.data, outputs, work.now, message)
                work.waits.append(rules.RETRY_SECONDS)
                return
        work.changes |= rules.succeeded(work.data, outputs, work.now)

    def _run_periodic(self, work: _Pass, plan: Plan, applied: bool) -> None:
        uid, checksum = work.secret.metadata.uid, rules.checksum(work.data["plan"])
        told = formats.unpack(work.data.get(rules.PERIODIC_OUTPUT, b""))
        of, kept = self._records.get(uid, ("", {}))
        records = dict(kept if of == checksum else told)
        for instruction in plan.periodic_instructions:
            name = instruction.name
            left = 0.0 if applied else rules.seconds_until(records.get(name), instruction, work.now)
            if not left:
                attempt = (records.get(name) or {}).get("failures", 0) + 1
                result = self._machinery.run(work.key, instruction, attempt)
                records[name] = rules.recorded(records.get(name), instruction, result, work.now)
                left = rules.seconds_until(records[name], instruction, work.now)
                if result.exit_code:
                    work.waits.append(left)
                    break
            work.waits.append(left)
        if plan.periodic_instructions:
            self._records[uid] = (checksum, records)
        if rules.is_news(told, records, work.now):
            work.changes |= rules.periodic(work.data, records)

    def _probe(self, work: _Pass, plan: Plan) -> None:
        """Run probes. They are repeated only while one fails, so a healthy server costs nothing."""
        before = rules.probe_statuses(work.data)
        after = {
            name: rules.probed(before.get(name, {}), probe, self._machinery.well(work.key, name))
            for name, probe in plan.probes.items()
        }
        if after != before:
            work.changes |= rules.probe_keys(after)
        if not all(status.get("healthy") for status in after.values()):
            work.waits.append(rules.PROBE_SECONDS)

    async def _report(self, work: _Pass) -> None:
        changed = {name: value for name, value in work.changes.items() if work.data.get(name) != value}
        if not changed:
            return
        data = {name: base64.b64encode(value).decode() for name, value in changed.items()}
        patch = {"metadata": {"resourceVersion": work.secret.metadata.resource_version}, "data": data}
        async with REPORT:
            await self._client.patch(SECRETS, *work.key, patch)
