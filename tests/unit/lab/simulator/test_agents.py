"""Model agents on the real engine, in virtual time."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.agent import formats, rules
from remuda.agent.plan import Instruction, Plan
from remuda.agent.rules import Result
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube.client import Client
from remuda.kube.objects import Key
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.agents import SECRET_TYPE, SECRETS, Agents, InstantHost
from remuda.runtime.manager import Manager

AGENT = Key("default", "m-plan")


class Server(InstantHost):
    """What its commands and probes come to is set by the test."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int, float]] = []
        self.failing: Counter[str] = Counter()
        self.takes = 0.0
        self.sick: set[str] = set()

    def seconds(self, agent: Key, plan: Plan) -> float:
        return self.takes

    def run(self, agent: Key, instruction: Instruction, attempt: int) -> Result:
        self.ran.append((instruction.name, attempt, asyncio.get_running_loop().time()))
        if self.failing[instruction.name]:
            self.failing[instruction.name] -= 1
            return Result(exit_code=1, stdout=b"no")
        return Result(stdout=f"output of {instruction.name}".encode())

    def well(self, agent: Key, probe: str) -> bool:
        return probe not in self.sick


class AgentHarness:
    def __init__(self, client: Client, server: Server, agents: Agents) -> None:
        self.client = client
        self.server = server
        self.agents = agents

    async def write(self, plan: dict[str, Any], **keys: str) -> None:
        data = {"plan": msgspec.json.encode(plan).decode(), **keys}
        await self.client.patch(SECRETS, *AGENT, {"stringData": {k.replace("_", "-"): v for k, v in data.items()}})

    async def read(self) -> dict[str, bytes]:
        secret = msgspec.json.decode(await self.client.get(SECRETS, *AGENT))
        return {name: base64.b64decode(text) for name, text in secret.get("data", {}).items()}

    async def version(self) -> str:
        return str(msgspec.json.decode(await self.client.get(SECRETS, *AGENT))["metadata"]["resourceVersion"])


def play(tmp_path: Path, scene: Callable[[AgentHarness], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, volatile=True))
        manager = Manager(engine.client(), name="agents")
        server = Server()
        agents = Agents(manager, server)
        secret = {"metadata": {"name": AGENT.name}, "type": SECRET_TYPE}
        await engine.client().create(SECRETS, AGENT.namespace, secret)
        await manager.start()
        manager.lead()
        try:
            await scene(AgentHarness(engine.client(), server, agents))
        finally:
            await manager.stop()
            await engine.stop()

    virtual.run(main())


PLAN = {"instructions": [{"name": "install", "saveOutput": True}, {"name": "start"}], "probes": {"kubelet": {}}}


def test_plan_is_applied_once_and_reported(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        await harness.write(PLAN)
        await asyncio.sleep(600)
        found = await harness.read()
        assert [name for name, _, _ in harness.server.ran] == ["install", "start"]
        assert found["applied-checksum"].decode() == rules.checksum(found["plan"])
        assert formats.unpack(found["applied-output"]) == {"install": base64.b64encode(b"output of install").decode()}
        assert msgspec.json.decode(found["probe-statuses"]) == {"kubelet": {"healthy": True, "successCount": 1}}

    play(tmp_path, scene)


def test_idle_agent_writes_nothing(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        await harness.write(PLAN)
        await asyncio.sleep(60)
        before = await harness.version()
        await asyncio.sleep(86_400)
        assert await harness.version() == before

    play(tmp_path, scene)


def test_failing_plan_is_retried_after_delay_until_max_failures(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        harness.server.failing["install"] = 9
        await harness.write(PLAN, max_failures="2")
        await asyncio.sleep(600)
        assert [(name, attempt) for name, attempt, _ in harness.server.ran] == [("install", 1), ("install", 2)]
        first, second = (at for _, _, at in harness.server.ran)
        assert second - first == pytest.approx(30, abs=1)
        found = await harness.read()
        assert (found["failure-count"], found["success-count"]) == (b"2", b"0")
        assert "applied-checksum" not in found

    play(tmp_path, scene)


def test_new_plan_is_applied_immediately_after_failures(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        harness.server.failing["install"] = 1
        await harness.write(PLAN)
        await asyncio.sleep(5)
        await harness.write({"instructions": [{"name": "mend"}]})
        await asyncio.sleep(5)
        found = await harness.read()
        assert found["applied-checksum"].decode() == rules.checksum(found["plan"])
        assert found["failure-count"] == b"0"

    play(tmp_path, scene)


def test_plan_application_takes_the_scripted_duration(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        harness.server.takes = 90
        await harness.write(PLAN)
        await asyncio.sleep(80)
        assert "applied-checksum" not in await harness.read()
        await asyncio.sleep(20)
        assert "applied-checksum" in await harness.read()

    play(tmp_path, scene)


def test_restarted_agent_reapplies_its_plan(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        await harness.write({"instructions": [{"name": "install"}]})
        await asyncio.sleep(10)
        harness.agents.restart(AGENT)
        await asyncio.sleep(10)
        assert [name for name, _, _ in harness.server.ran] == ["install", "install"]
        assert (await harness.read())["success-count"] == b"2"

    play(tmp_path, scene)


def test_periodic_instructions_run_by_their_period(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        await harness.write({"periodicInstructions": [{"name": "members", "periodSeconds": 100}]})
        await asyncio.sleep(350)
        assert [round(at, -1) for _, _, at in harness.server.ran] == [0, 100, 200, 300]
        records = formats.unpack((await harness.read())["applied-periodic-output"])
        assert base64.b64decode(records["members"]["stdout"]) == b"output of members"

    play(tmp_path, scene)


def test_failing_probes_are_polled_until_healthy(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        harness.server.sick.add("kubelet")
        await harness.write(PLAN)
        await asyncio.sleep(30)
        assert msgspec.json.decode((await harness.read())["probe-statuses"]) == {"kubelet": {"failureCount": 3}}
        harness.server.sick.clear()
        await asyncio.sleep(30)
        statuses = msgspec.json.decode((await harness.read())["probe-statuses"])
        assert statuses == {"kubelet": {"healthy": True, "successCount": 1}}

    play(tmp_path, scene)


def test_agents_ignore_secrets_that_are_not_plan_secrets(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        secret = {"metadata": {"name": "other"}, "stringData": {"plan": msgspec.json.encode(PLAN).decode()}}
        await harness.client.create(SECRETS, "default", secret)
        await asyncio.sleep(60)
        assert harness.server.ran == []

    play(tmp_path, scene)


def test_plan_state_mode_runs_plan_only_when_pending(tmp_path: Path) -> None:
    async def scene(harness: AgentHarness) -> None:
        harness.server.failing["install"] = 1
        await harness.write(PLAN, plan_state="pending")
        await asyncio.sleep(100)
        harness.agents.restart(AGENT)
        await asyncio.sleep(100)
        found = await harness.read()
        assert (found["plan-state"], found["plan-revision"], found["failure-count"]) == (b"failed", b"1", b"1")
        await harness.write(PLAN, plan_state="pending")
        await asyncio.sleep(100)
        found = await harness.read()
        assert (found["plan-state"], found["plan-revision"], found["failure-count"]) == (b"succeeded", b"2", b"0")
        assert [(name, attempt) for name, attempt, _ in harness.server.ran] == [
            ("install", 1),
            ("install", 1),
            ("start", 1),
        ]

    play(tmp_path, scene)
