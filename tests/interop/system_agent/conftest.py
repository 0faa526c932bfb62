"""One host per test and agent: the same plan, the same expectations, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.system_agent.differences import DIFFERENCES
from tests.lab import Ours
from tests.lab.agents import PERIOD, Agent, Data, PlanSecret, RemudaAgent, SystemAgent, checksum
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.up import eventually

AGENTS = {kind.name: kind for kind in (SystemAgent, RemudaAgent)}


class Host:
    """A folder, a plan Secret and the agent that follows it."""

    def __init__(self, kind: type[Agent], folder: Path, server: Ours) -> None:
        self.folder = folder
        self.secret = PlanSecret(server)
        self.agent = kind(folder / "agent", self.secret)
        self.notes = folder / "notes"  # where instructions write down that they ran

    def note(self, words: str) -> str:
        """A shell command that writes a line into the notes."""
        return f"echo {words} >> {self.notes}"

    def shell(self, command: str, **more: Any) -> dict[str, Any]:
        """An instruction."""
        return {"command": "sh", "args": ["-c", command], **more}

    @property
    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def give(self, plan: Any, **keys: str | None) -> None:
        """Writes the plan, and starts the agent if it does not run."""
        self.write(plan, **keys)
        if not self.agent.running:
            self.agent.start()

    def write(self, plan: Any = None, **keys: str | None) -> None:
        """Upstream's agent dies of a write between its own (its unit starts it again): it may end those first."""
        if isinstance(self.agent, SystemAgent) and self.agent.running:
            self.secret.quiet()
        self.secret.write(plan, **keys)

    def applied(self, plan: Any, **keys: str | None) -> Data:
        """Gives a plan; the Secret once the plan is the applied one."""
        self.give(plan, **keys)
        wanted = checksum(plan)
        return self.wait(lambda data: data.get("applied-checksum") == wanted, "the plan is applied")

    def failed(self, plan: Any, times: int = 1, **keys: str | None) -> Data:
        """Gives a plan; the Secret once it has failed so many times."""
        self.give(plan, **keys)
        return self.has_failed(plan, times)

    def has_failed(self, plan: Any, times: int = 1, seconds: float = LIMIT_SECONDS) -> Data:
        wanted, count = checksum(plan), str(times).encode()
        return self.wait(
            lambda data: data.get("failed-checksum") == wanted and data.get("failure-count") == count,
            f"the plan has failed {times} times",
            seconds,
        )

    def wait(self, until: Any, what: str, seconds: float = LIMIT_SECONDS, since: int = 0) -> Data:
        try:
            return self.secret.wait(until, what, seconds, since)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.agent.said()}") from None

    def until(self, holds: Callable[[], object], what: str) -> None:
        """What the agent does beside the Secret."""
        eventually(holds, lambda: f"not so: {what}\n{self.agent.said()}", LIMIT_SECONDS)

    def settle(self, passes: int = 3) -> Data:
        """After so many passes of the agent: that nothing happens can only be seen by looking on."""
        time.sleep(passes * PERIOD * 1.2)
        assert self.agent.running, self.agent.said()
        return self.secret.data

    def expected(self, what: str) -> Any:
        """Of this agent, where the two differ."""
        difference = DIFFERENCES[what]
        return difference.theirs if isinstance(self.agent, SystemAgent) else difference.ours

    def close(self) -> None:
        self.agent.stop()
        self.secret.close()


@pytest.fixture(scope="session")
def failing(ours: Ours, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """Both agents with a plan that fails, twice at most: what comes of it is looked at in the end."""
    hosts = {name: Host(kind, tmp_path_factory.mktemp(name), ours) for name, kind in AGENTS.items()}
    for host in hosts.values():
        host.agent.command()  # says so if it cannot run here
        host.give({"instructions": [host.shell(f"{host.note('$(date +%s.%N)')}; exit 1")]}, max_failures="2")
    yield hosts
    for host in hosts.values():
        host.close()


@pytest.fixture(params=list(AGENTS))
def host(request: pytest.FixtureRequest, failing: object, ours: Ours, tmp_path: Path) -> Iterator[Host]:
    made = Host(AGENTS[request.param], tmp_path, ours)
    yield made
    made.close()
