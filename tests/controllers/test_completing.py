"""Names that shells complete from the server."""

from __future__ import annotations

import asyncio

from tests.controllers.engine import Engine
from tests.controllers.provisioning_harness import ProvisioningHarness, pool
from tests.unit.cli.test_completion import complete


async def asked(engine: Engine, line: str) -> list[str]:
    """Whoever presses Tab on a busy machine presses it again."""
    for _ in range(5):
        found = await asyncio.to_thread(complete, line, KUBECONFIG=str(engine.kubeconfig))
        assert (found.returncode, found.stderr) == (0, "")
        names = [name.partition(",")[2] for name in found.stdout.split()]
        if names:
            return names
    return []


async def test_shell_completion_lists_names_from_server(engine: Engine) -> None:
    harness = await ProvisioningHarness.create(engine)
    await harness.config("servers")
    await harness.cluster(pool("servers"), name="prairie-of-tabs")
    place = harness.namespace
    for line in ("remuda describe cluster prairie-of-", "remuda why prairie-of-", f"remuda scale -n {place} p"):
        assert "prairie-of-tabs" in await asked(engine, line)
    assert await asked(engine, f"remuda get simconfigs -n {place} ") == ["servers"]
    assert "machinedeployments" in await asked(engine, "remuda get mach")
    assert "kubeconfig" in await asked(engine, "remuda get ku")
    assert await asked(engine, f"remuda get clusters -n {place[:-1]}") == [place]
