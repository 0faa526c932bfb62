"""The controllers of access die before and after everything they do, and users, grants and kubeconfigs come and go
whole all the same: of all that was given nothing is left.

Which points there are is asked of the program: a new step is killed at, or this test fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remuda.access.system_users import system_user
from remuda.access.types import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GRANT, MANAGEMENT_CLUSTER, TOKEN, USER
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app.controllers import ADMISSION
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.providers.controlplane.identity import derived_id
from remuda.providers.shared import names
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.runtime import steps
from tests.controllers.access_harness import AccessHarness
from tests.controllers.engine import Engine, Json, named
from tests.faults import register
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.programs import Program

SUITE = "tests/faults/access/test_crash_points.py"
_ROUNDS = 3


class Access:
    """Started again whenever it has died, with the points it has not died at yet."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path, points: set[str]) -> None:
        arguments = ("-m", "tests.lab.access_manager", str(kubeconfig), namespace)
        self._program = Program("access", arguments, folder, forked=True)
        self._died = folder / "died"
        self._died.mkdir()
        self._points = points

    @property
    def left(self) -> set[str]:
        return self._points - {path.name for path in self._died.iterdir()}

    async def keep_alive(self) -> None:
        environment = {steps.VARIABLE: ",".join(sorted(self._points)), steps.ONCE_VARIABLE: str(self._died)}
        try:
            while True:
                await self._program.start(environment)
                await self._program.ended()
        finally:
            self._program.kill()
            await self._program.ended()


@asynccontextmanager
async def alive(program: Access) -> AsyncIterator[None]:
    task = asyncio.create_task(program.keep_alive())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("side", ["before", "after"])
async def test_access_controllers_recover_from_crash_at_every_point(tmp_path: Path, side: str) -> None:
    points = {point for point in register.points(SUITE) if point.endswith(f":{side}")}
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "data", port=0), admission=ADMISSION)
    try:
        engine = Engine("embedded", server.client(), server.kubeconfig)
        harness = await AccessHarness.create(engine)
        program = Access(server.kubeconfig, harness.namespace, tmp_path, points)
        async with alive(program):
            for number in range(_ROUNDS):
                await live(harness, declared=number % 2 == 0)
                if number and not program.left:
                    break
        assert program.left == set(), "the scenario has not come here"
    finally:
        await server.stop()


async def live(harness: AccessHarness, *, declared: bool) -> None:
    engine, system = harness.engine, system_user(harness.cluster)
    user = await harness.user()
    if declared:
        harness.id = f"c-m-{user.rpartition('-')[2]}"
        await harness.create_cluster(**{names.CREATOR: user})
        await granted(harness, "creator-cluster-owner")
        await until(engine, MANAGEMENT_CLUSTER.target, "", harness.id, lambda obj: "creator-granted" in str(obj))
    else:
        harness.id = derived_id(harness.cluster)
        await harness.create_control_plane()
    await harness.admin_kubeconfig()
    await until(engine, SECRETS, harness.namespace, "c-kubeconfig", lambda obj: "token" in obj["data"])
    await granted(harness, names.join(harness.id, harness.namespace, "owner"))
    token = await harness.token(user, seconds=3600.0)
    await until(engine, TOKEN.target, "", named(token.obj), lambda obj: obj["metadata"].get("ownerReferences"))
    await engine.patch(TOKEN.target, "", named(token.obj), {"expiresAt": soon()})
    await engine.gone(TOKEN.target, "", named(token.obj), seconds=LIMIT_SECONDS)
    before = await until(engine, SECRETS, harness.namespace, "c-kubeconfig", lambda obj: True)
    await engine.delete(SECRETS, harness.namespace, "c-kubeconfig")  # its token's secret is lost
    again = await until(
        engine, SECRETS, harness.namespace, "c-kubeconfig", lambda obj: obj["data"]["token"] != before["data"]["token"]
    )
    await engine.patch(
        SECRETS, harness.namespace, "c-kubeconfig", {"metadata": {"annotations": {"remuda.dev/server": "x"}}}
    )
    await until(
        engine,
        SECRETS,
        harness.namespace,
        "c-kubeconfig",
        lambda obj: obj["metadata"]["annotations"] != {} and "ranch" in str(obj),
    )
    assert again["data"]["token"]
    await harness.grant(user, name=f"g-{user}")
    await granted(harness, f"g-{user}")
    await engine.delete(GRANT.target, harness.id, f"g-{user}")
    await engine.gone(GRANT.target, harness.id, f"g-{user}", seconds=LIMIT_SECONDS)
    await engine.delete(RKE_CONTROL_PLANE.target, harness.namespace, "c")
    await engine.delete(SECRETS, harness.namespace, "c-kubeconfig-admin")
    if declared:
        await engine.delete(MANAGEMENT_CLUSTER.target, "", harness.id)
        await engine.delete(NAMESPACES, "", harness.id)
    await engine.delete(USER.target, "", user)
    await engine.gone(USER.target, "", system, seconds=LIMIT_SECONDS)
    await engine.gone(NAMESPACES, "", harness.id, seconds=LIMIT_SECONDS)
    for target in (TOKEN.target, GRANT.target, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        await engine.when(target, "", lambda objects: not leftovers(harness, objects), seconds=LIMIT_SECONDS)


def leftovers(harness: AccessHarness, objects: Sequence[Json]) -> list[str]:
    """On the management plane. The cluster is the same server here, and of one that is gone nothing is removed."""
    ours = (f"remuda:cluster:{harness.id}", f"remuda:grant:{harness.id}:")
    kinds = (TOKEN.name, GRANT.name)
    return [named(obj) for obj in objects if obj["kind"] in kinds or named(obj).startswith(ours)]


async def granted(harness: AccessHarness, name: str) -> None:
    def holds(obj: Json) -> bool:
        return any(one["status"] == "True" for one in obj.get("status", {}).get("conditions", []))

    await until(harness.engine, GRANT.target, harness.id, name, holds)


async def until(engine: Engine, target: Target, namespace: str, name: str, holds: Callable[[Json], object]) -> Json:
    return await engine.until(target, namespace, name, holds, seconds=LIMIT_SECONDS)


def soon() -> str:
    return clock.rfc3339(clock.time() + 2.0)
