"""`remuda manager` beside `remuda apiserver`, as processes: who leads, how they end, and what they say of it."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from remuda.kube import kubeconfig
from tests.e2e.conftest import Launch
from tests.e2e.program import Running, run
from tests.lab.ports import free_port
from tests.lab.programs import Program

LEASE = "/apis/coordination.k8s.io/v1/namespaces/remuda-system/leases/remuda"
# Leases last longer than a slow machine may keep a leader from renewing its own, unless a test waits for their end.
LONG_LEASE = ("--lease-seconds", "600")
SHORT_LEASE = ("--lease-seconds", "6")
FOLLOWER = ("--lease-seconds", "15")  # a follower looks at the lease every two seconds
READY = re.compile(
    r"remuda manager ready after [0-9.]+ s, pid ([0-9]+), with leader election, runs cluster, machine, machineset, "
    r"machinedeployment, machinehealthcheck",
    re.ASCII,
)

Manage = Callable[..., Program]


@pytest.fixture
async def manage(tmp_path: Path) -> AsyncIterator[Manage]:
    """A manager that is not started yet; whatever still runs at the end is ended."""
    async with AsyncExitStack() as programs:

        def make(server: Running, name: str = "manager", *flags: str) -> Program:
            arguments = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(server.kubeconfig))
            program = Program(name, (*arguments, *(flags or LONG_LEASE)), tmp_path)
            programs.push_async_callback(program.stop)
            return program

        yield make


async def leading(program: Program) -> Program:
    if not program.lives:
        await program.start()
    assert await program.prints(" leads "), program.said
    return program


async def following(program: Program) -> Program:
    await program.start()
    assert await program.ready(), program.said
    return program


def holder(server: Running) -> str:
    return str(server.http("GET", LEASE).body["spec"].get("holderIdentity", ""))


async def test_manager_prints_ready_line_and_leader_line(data: Path, launch: Launch, manage: Manage) -> None:
    server = launch(data)
    program = await leading(manage(server))
    ready, leads = program.printed.splitlines()
    said = READY.fullmatch(ready)
    assert said is not None, ready
    assert int(said[1]) == program.pid
    assert leads == f"remuda manager leads by lease remuda-system/remuda as {holder(server)}"
    assert f"_{program.pid}_" in leads
    assert await program.stop() == 0
    assert (holder(server), program.said) == ("", "")


async def test_manager_exits_cleanly_on_sigint(data: Path, launch: Launch, manage: Manage) -> None:
    program = await leading(manage(launch(data)))
    program.signal(signal.SIGINT)
    assert await program.ended() == 0
    assert program.said == ""


async def test_second_manager_takes_lead_when_leader_stops(data: Path, launch: Launch, manage: Manage) -> None:
    server = launch(data)
    first = await leading(manage(server, "first"))
    second = await following(manage(server, "second", *FOLLOWER))
    assert f"_{first.pid}_" in holder(server)
    assert await first.stop() == 0
    await leading(second)  # long before the lease ends
    assert f"_{second.pid}_" in holder(server)


async def test_killed_leader_is_replaced_after_lease_expiry(data: Path, launch: Launch, manage: Manage) -> None:
    server = launch(data)
    first, second = await leading(manage(server, "first")), await following(manage(server, "second", *FOLLOWER))
    first.kill()
    assert await first.ended() == -signal.SIGKILL
    shorter = {"spec": {"leaseDurationSeconds": 1}}  # else the follower would wait for ten minutes
    assert server.http("PATCH", LEASE, shorter, {"Content-Type": "application/merge-patch+json"}).code == 200
    await leading(second)
    assert f"_{second.pid}_" in holder(server)
    assert server.http("GET", LEASE).body["spec"]["leaseTransitions"] == 1


async def test_follower_exit_is_silent_and_keeps_leader(data: Path, launch: Launch, manage: Manage) -> None:
    server = launch(data)
    first, second = await leading(manage(server, "first")), await following(manage(server, "second"))
    assert await second.stop() == 0
    assert " leads " not in second.printed
    assert f"_{first.pid}_" in holder(server)


async def test_leader_exits_with_message_when_server_is_lost_while_follower_survives(
    data: Path, launch: Launch, manage: Manage
) -> None:
    port = free_port()
    server = launch(data, "--listen", f"127.0.0.1:{port}")
    first = await leading(manage(server, "first", *SHORT_LEASE))
    second = await following(manage(server, "second", *FOLLOWER))
    server.signal(signal.SIGKILL)
    assert await first.ended() == 1
    assert first.said.splitlines()[-1].startswith(
        "remuda manager: stopped, because another replica may lead by now: "
        "lease remuda-system/remuda could not be renewed"
    )
    assert "Traceback" not in first.said
    assert second.alive
    launch(data, "--listen", f"127.0.0.1:{port}")
    await leading(second)
    assert await second.stop() == 0


async def test_manager_without_leader_election_leads_at_once_and_survives_server_restart(
    data: Path, launch: Launch, manage: Manage
) -> None:
    port = free_port()
    server = launch(data, "--listen", f"127.0.0.1:{port}")
    program = await following(manage(server, "manager", "--no-leader-elect"))
    assert "without leader election" in program.printed
    assert server.http("GET", LEASE).code == 404
    server.signal(signal.SIGKILL)
    again = launch(data, "--listen", f"127.0.0.1:{port}")
    clusters = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters"
    ref = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "NobodysCluster", "name": "c"}
    cluster = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"}}
    made = again.http("POST", clusters, {**cluster, "spec": {"infrastructureRef": ref}})
    assert made.code == 201, made
    assert any(b"cluster.cluster.x-k8s.io" in line for line in again.stream(f"{clusters}?watch=1"))
    assert await program.stop() == 0


async def test_managers_started_concurrently_install_definitions_once(
    data: Path, launch: Launch, manage: Manage
) -> None:
    server = launch(data)
    first, second = manage(server, "first"), manage(server, "second")
    await first.start()
    await second.start()
    assert await first.ready(), first.said
    assert await second.ready(), second.said
    generations = {
        item["metadata"]["generation"]
        for item in server.http("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").body["items"]
    }
    assert generations == {1}


def test_manager_startup_errors_are_one_line_with_exit_code_1(data: Path, tmp_path: Path, launch: Launch) -> None:
    nowhere = tmp_path / "nowhere"
    kubeconfig.write(nowhere, kubeconfig.build(f"https://127.0.0.1:{free_port()}", token="x"))
    server = launch(data)
    for flags, said in (
        (("--kubeconfig", tmp_path / "none"), str(tmp_path / "none")),
        (("--kubeconfig", server.kubeconfig, "--context", "other"), "other"),
        (("--kubeconfig", nowhere), "Connection refused"),
        (("--kubeconfig", nowhere, "--remove-webhooks"), "Connection refused"),
        (("--kubeconfig", server.kubeconfig, "--controllers", "bogus"), "unknown controller or group bogus"),
        (("--kubeconfig", server.kubeconfig, "--webhook-listen", ":9443"), "add --webhook-url"),
    ):
        ended = run("manager", *flags)
        assert (ended.code, ended.out) == (1, ""), ended
        [line] = ended.err.splitlines()
        assert line.startswith("remuda manager: ")
        assert said in line
    assert server.http("GET", "/api/v1/namespaces/remuda-system").code == 404


@pytest.mark.parametrize(
    "flags", [("--lease-seconds", "1"), ("--health-listen", "8081"), ("--webhook-listen", "host"), ("--bogus",)]
)
def test_invalid_manager_flags_exit_with_usage_error(flags: tuple[str, ...]) -> None:
    ended = run("manager", *flags)
    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err


def test_remove_webhooks_reports_when_none_are_registered(data: Path, launch: Launch) -> None:
    server = launch(data)
    ended = run("manager", "--kubeconfig", server.kubeconfig, "--remove-webhooks")
    assert (ended.code, ended.out, ended.err) == (0, "remuda manager: no webhooks were registered\n", "")


def test_manager_help_describes_options_and_webhook_removal() -> None:
    overview = run("--help").out
    assert "  manager " in overview
    assert "  up " in overview
    said = run("manager", "--help")
    assert (said.code, said.err) == (0, "")
    for words in ("--controllers", "--health-listen", "--webhook-url", "--remove-webhooks", "refuses every write"):
        assert words in " ".join(said.out.split())
