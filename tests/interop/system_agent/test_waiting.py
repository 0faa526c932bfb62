"""The pause after a failure in real time, which takes half a minute: it began with the first test of this folder."""

from __future__ import annotations

import pytest

from tests.interop.system_agent.conftest import AGENTS, Host


@pytest.mark.parametrize("name", list(AGENTS))
def test_failed_plan_is_retried_once_after_thirty_seconds(failing: dict[str, Host], name: str) -> None:
    host = failing[name]
    host.has_failed(host.secret.data["plan"], 2)
    first, second = (float(line) for line in host.noted)
    assert 28.5 <= second - first < 55  # times are kept in whole seconds; a slow machine adds some, but no half minute
    host.settle(5)
    assert len(host.noted) == 2
