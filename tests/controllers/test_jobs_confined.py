"""A Job of a driver that needs no rights, where the manager is root: it works as a user of its own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import pytest

from remuda.jobs.processes import Processes
from tests.controllers.engine import Engine, is_true
from tests.controllers.jobs import finished, pod_of
from tests.controllers.test_machine_job import Program, an_order, ask, provision, state_of
from tests.lab.drivers import ExistingServers
from tests.lab.existing_servers import stop_all


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as other users")
async def test_unprivileged_job_bootstraps_server_over_ssh(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    namespace, existing_servers = await engine.namespace(), ExistingServers(tmp_path, count=1)
    await existing_servers.start()
    ssh_server = existing_servers.ssh_servers[0]
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    sudo.chmod(0o755)
    ssh_server.environment = {**ssh_server.environment, "PATH": f"{sudo.parent}:{ssh_server.environment['PATH']}"}
    order = msgspec.structs.replace(an_order(driver="existing", **existing_servers.options), namespace=namespace)
    await ask(engine, namespace, order, dict(existing_servers.credentials), script=b"echo bootstrapped\n")
    try:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # one that every user can reach
            Path(folder).chmod(0o755)
            program = Program(engine, Path(folder, "data"))
            program.rights = ()
            async with engine.running(namespace, program.setup):
                await program.submit(namespace, provision("create"))
                done = await finished(engine, namespace, "create")
                said = await program.log(await pod_of(engine, namespace, "create"))
            warnings = [text for text in caplog.messages if "Jobs run as the user of the manager" in text]
            confined = await Processes(Path(folder, "data"), Path(folder, "hosts")).can_confine()
    finally:
        await stop_all(existing_servers.ssh_servers)
    assert is_true(done, "Complete"), said
    assert "bootstrapped" in said
    assert (await state_of(engine, namespace)).phase == "bootstrapped"
    assert len(warnings) == (0 if confined else 1), "where it is impossible, one warning says why"
