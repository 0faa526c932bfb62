"""`remuda machine` and `remuda leaks`, as programs: a shell with the key of the machine-state Secret, the log of a Job,
servers that nobody owns."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.capi.inventory import NAMESPACE as OURS
from remuda.capi.types import MACHINE
from remuda.kube.client import Client
from remuda.kube.core import JOBS, NAMESPACES, PODS, SECRETS
from remuda.providers.machine import definitions, leaks, options
from remuda.providers.shared.drivers.process.host import NETWORK, Details
from remuda.providers.shared.drivers.process.host import Hosts as ProcessHosts
from remuda.providers.shared.drivers.sim import Sim
from remuda.providers.shared.drivers.simcloud import FileCloud, ServerRequest
from remuda.providers.shared.drivers.spi import DIRECTORY, TAG_MACHINE, TAG_OWNER, TAG_UID, Address
from remuda.providers.shared.jobs import job_spec
from remuda.providers.shared.jobs.login import known_hosts
from remuda.providers.shared.jobs.manifests import MACHINE_GROUP, REMOVAL_OF
from remuda.providers.shared.jobs.state import KNOWN_HOSTS, PRIVATE_KEY, STATE, State, write
from remuda.providers.shared.types.machine import NODE_DRIVER, machine_kind
from tests.controllers.engine import Engine, eventually
from tests.controllers.program import remuda
from tests.lab.ssh_host import Host

SIM = machine_kind("sim")


# ---- ssh ------------------------------------------------------------------------------------------------------------


async def keep(engine: Engine, namespace: str, host: Host, *, pinned: str | None = None) -> None:
    """The machine-state Secret of m-1-abc."""
    known = State(
        driver="any",
        phase="created",
        addresses=[Address("InternalIP", "127.0.0.1")],
        ssh_user="root",
        ssh_port=host.port,
    )
    login = host.login()
    data = {
        STATE: write(known),
        PRIVATE_KEY: login.private_key.encode(),
        KNOWN_HOSTS: (known_hosts(login) if pinned is None else pinned).encode(),
    }
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    secret = {"metadata": {"name": "m-1-abc-machine-state"}, "type": "rke.cattle.io/machine-state", "data": encoded}
    await engine.create(SECRETS, namespace, secret)


async def test_machine_ssh_uses_stored_key_and_returns_exit_code(engine: Engine, tmp_path: Path) -> None:
    namespace, host = await engine.namespace(), Host()
    async with host.serving():
        await keep(engine, namespace, host)
        done = await remuda(
            engine, "machine", "ssh", "m-1-abc", "-n", namespace, "--", "echo hello; exit 5", tmp=tmp_path
        )
    assert (done.code, done.out) == (5, "hello\n"), done.err
    assert list(tmp_path.iterdir()) == [], "the key is gone"


async def test_machine_ssh_finds_server_by_machine_name(engine: Engine) -> None:
    namespace, host = await engine.namespace(), Host()
    name = f"m-{namespace}"
    reference = {"apiGroup": "rke-machine.cattle.io", "kind": "AnyMachine", "name": "m-1-abc"}
    spec = {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": reference}
    machine = {"apiVersion": MACHINE.api_version, "kind": "Machine", "metadata": {"name": name}, "spec": spec}
    await engine.create(MACHINE.target, namespace, machine)
    async with host.serving():
        await keep(engine, namespace, host)
        done = await remuda(engine, "machine", "ssh", name, "--", "id", "-u")
    assert (done.code, done.out) == (0, f"{os.getuid()}\n"), done.err


async def test_machine_ssh_works_without_ssh_program(engine: Engine, tmp_path: Path) -> None:
    namespace, host = await engine.namespace(), Host()
    async with host.serving():
        await keep(engine, namespace, host)
        done = await remuda(
            engine, "machine", "ssh", "m-1-abc", "-n", namespace, "--", "echo hello; exit 5", path=str(tmp_path)
        )
    assert (done.code, done.out) == (5, "hello\n"), done.err


async def test_machine_ssh_rejects_changed_host_key(engine: Engine, tmp_path: Path) -> None:
    namespace, host, other = await engine.namespace(), Host(), Host()
    async with host.serving():
        other.port = host.port
        await keep(engine, namespace, host, pinned=known_hosts(other.login()))
        done = await remuda(engine, "machine", "ssh", "m-1-abc", "-n", namespace, "--", "touch", str(tmp_path / "done"))
    assert done.code == 255
    assert "verification failed" in done.err
    assert not (tmp_path / "done").exists()


async def test_machine_ssh_pins_unknown_host_key_on_first_connect(engine: Engine) -> None:
    namespace, host = await engine.namespace(), Host()
    async with host.serving():
        await keep(engine, namespace, host, pinned="")
        done = await remuda(engine, "machine", "ssh", "m-1-abc", "-n", namespace, "--", "true")
    secret = await engine.get(SECRETS, namespace, "m-1-abc-machine-state")
    assert done.code == 0, done.err
    assert "this server has no pinned host key" in done.err
    assert secret is not None
    assert host.public in base64.b64decode(secret["data"][KNOWN_HOSTS]).decode()


async def a_process_host(engine: Engine, namespace: str, hosts: Path, machine: str) -> Path:
    """Return the directory of the host m-1-abc, which the machine-state Secret names."""
    tags = {TAG_OWNER: "us", TAG_UID: "uid", TAG_MACHINE: machine}
    ProcessHosts(hosts).claim(Details(name="m-1-abc", hostname="m-1", address="", tags=tags), NETWORK)
    known = State(driver="process", phase="created", record={DIRECTORY: str(hosts / "m-1-abc")})
    data = {STATE: base64.b64encode(write(known)).decode()}
    secret = {"metadata": {"name": "m-1-abc-machine-state"}, "type": "rke.cattle.io/machine-state", "data": data}
    await engine.create(SECRETS, namespace, secret)
    return hosts / "m-1-abc"


async def test_machine_commands_reach_process_host(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    host = await a_process_host(engine, namespace, tmp_path, f"{namespace}/m-1-abc")
    log = host / "root/var/lib/rancher/agent/agent.log"
    log.parent.mkdir(parents=True)
    log.write_text("probe kubelet: healthy\n")
    done = await remuda(engine, "machine", "ssh", "m-1-abc", "-n", namespace, "--", "pwd; echo $HOSTNAME; exit 3")
    assert (done.code, done.out.split()) == (3, [str(host / "root"), "m-1"]), done
    done = await remuda(engine, "machine", "logs", "m-1-abc", "-n", namespace, "--agent")
    assert (done.code, done.out) == (0, "probe kubelet: healthy\n"), done


async def test_machine_ssh_refuses_directory_of_another_machine(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    await a_process_host(engine, namespace, tmp_path, "elsewhere/m-1-abc")
    done = await remuda(engine, "machine", "ssh", "m-1-abc", "-n", namespace, "--", "true")
    assert done.code == 1
    assert "is the host of another machine: elsewhere/m-1-abc" in done.err


async def test_machine_ssh_names_place_of_host_on_another_machine(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    host = await a_process_host(engine, namespace, tmp_path, f"{namespace}/m-1-abc")
    host.rename(tmp_path / "not-here")
    done = await remuda(engine, "machine", "ssh", "m-1-abc", "-n", namespace)
    assert done.code == 1
    assert "run this command there, as the user that runs the manager" in done.err


@pytest.mark.parametrize("command", ["ssh", "logs"])
async def test_missing_machine_is_reported(engine: Engine, command: str) -> None:
    namespace = await engine.namespace()
    done = await remuda(engine, "machine", command, "nobody", "-n", namespace)
    assert done.code == 1
    assert f"machine nobody not found in namespace {namespace}" in done.err


async def removal(engine: Engine, subject: str, group: str, message: str) -> None:
    """A Job in the manager's namespace that removes what an object of a deleted namespace had, and its Pod, which has
    failed."""
    labels = {REMOVAL_OF: "uid", MACHINE_GROUP: group}
    image = {"containers": [{"name": "machine", "image": "x"}], "restartPolicy": "Never"}
    job = {
        "metadata": {"generateName": "m-", "labels": labels, "annotations": {REMOVAL_OF: subject}},
        "spec": {"suspend": True, "template": {"spec": image}},
    }
    if await engine.get(NAMESPACES, "", OURS) is None:
        await engine.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OURS}})
    made = await engine.create(JOBS, OURS, {"apiVersion": "batch/v1", "kind": "Job", **job})
    name = made["metadata"]["name"]
    pod = {"metadata": {"name": f"{name}-0", "labels": {"job-name": name}}, "spec": image}
    await engine.create(PODS, OURS, {"apiVersion": "v1", "kind": "Pod", **pod})
    ended = {"name": "machine", "state": {"terminated": {"exitCode": 1, "message": message}}, "ready": False}
    await engine.status(PODS, OURS, f"{name}-0", {"phase": "Failed", "containerStatuses": [_container(ended)]})


def _container(status: dict[str, Any]) -> dict[str, Any]:
    return {"image": "x", "imageID": "", "restartCount": 0, **status}


async def test_logs_finds_removal_jobs_of_deleted_namespace(engine: Engine) -> None:
    namespace = await engine.namespace()
    await removal(engine, f"{namespace}/m-1", "rke-machine.cattle.io", "no route to the cloud")
    await removal(engine, f"{namespace}/c-1", "infrastructure.cluster.x-k8s.io", "a cluster")
    await removal(engine, f"{namespace}/m-2", "rke-machine.cattle.io", "another machine")
    done = await remuda(engine, "machine", "logs", "m-1", "-n", namespace)
    assert (done.code, done.out) == (0, "the Job ended with exit code 1: no route to the cloud\n"), done.err
    for name, where in (("m-1", await engine.namespace()), ("c-1", namespace)):
        nobody = await remuda(engine, "machine", "logs", name, "-n", where)
        assert (nobody.code, f"machine {name} not found" in nobody.err) == (1, True)


# ---- leaks ----------------------------------------------------------------------------------------------------------


async def uses_sim(engine: Engine, namespace: str) -> str:
    """A machine of the driver sim, made; its tag."""
    await engine.install([definitions.node_driver(), *definitions.of_driver(options.of_driver(Sim))])
    if await engine.get(NODE_DRIVER.target, "", "sim") is None:
        driver = {"apiVersion": NODE_DRIVER.api_version, "kind": "NodeDriver", "metadata": {"name": "sim"}}
        await engine.create(NODE_DRIVER.target, "", {**driver, "spec": {"active": True, "url": "local://"}})
    machine = {
        "apiVersion": SIM.api_version,
        "kind": SIM.name,
        "metadata": {"name": "kept"},
        "spec": {"cloud": namespace},
    }

    async def served() -> bool:
        try:
            await engine.create(SIM.target, namespace, machine)
        except Exception:
            return False
        return True

    await eventually(served)
    found = await engine.get(SIM.target, namespace, "kept")
    metadata = SIM.decode(msgspec.json.encode(found)).metadata
    return job_spec.identity(metadata).rpartition("/")[2]


async def test_servers_without_a_machine_are_leaks(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    kept = await uses_sim(engine, namespace)
    plane = await engine.get(NAMESPACES, "", "kube-system")
    assert plane is not None
    cloud = FileCloud(tmp_path / "sim" / f"{namespace}.jsonl")

    async def make(name: str, uid: str, owner: str) -> None:
        await cloud.create(
            ServerRequest(name=name, tags={TAG_OWNER: owner, TAG_UID: uid, TAG_MACHINE: f"{namespace}/{name}"})
        )

    await make("kept", kept, plane["metadata"]["uid"])
    await make("foreign", "other", "another-plane")
    arguments = ("leaks", "--driver", "sim", "--hosts", str(tmp_path))
    assert (await remuda(engine, *arguments)).code == 0
    await make("lost", "gone", plane["metadata"]["uid"])
    table, found = await asyncio.gather(remuda(engine, *arguments), remuda(engine, *arguments, "-o", "json"))
    assert (table.code, found.code) == (1, 1)
    assert [line.split()[:4] for line in table.out.splitlines()[1:]] == [["sim", "server", "3", "lost"]]
    listed: list[dict[str, Any]] = json.loads(found.out)
    assert [(leak["name"], leak["machine"]) for leak in listed] == [("lost", f"{namespace}/lost")]


async def test_server_of_a_machine_created_during_the_search_is_no_leak(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = await engine.namespace()
    uid = await uses_sim(engine, namespace)
    plane = await engine.get(NAMESPACES, "", "kube-system")
    assert plane is not None
    cloud = FileCloud(tmp_path / "sim" / f"{namespace}.jsonl")
    tags = {TAG_OWNER: plane["metadata"]["uid"], TAG_UID: uid, TAG_MACHINE: f"{namespace}/new"}
    await cloud.create(ServerRequest(name="new", tags=tags))
    in_use, asked = leaks._in_use, 0

    async def without_owners_at_first(client: Client, driver: str) -> Any:
        nonlocal asked
        owned, uses = await in_use(client, driver)
        asked += 1
        return (set(), uses) if asked == 1 else (owned, uses)

    monkeypatch.setattr(leaks, "_in_use", without_owners_at_first)
    assert list((await leaks.find(engine.client, leaks.LeakSearchScope(tmp_path), ["sim"])).leaks) == []
    assert asked == 2


async def test_failed_leak_check_is_not_reported_as_no_leaks(engine: Engine, tmp_path: Path) -> None:
    await uses_sim(engine, await engine.namespace())
    nobody, foo, nowhere = await asyncio.gather(
        remuda(engine, "leaks", "--driver", "sim"),
        remuda(engine, "leaks", "--driver", "foo"),
        remuda(engine, "leaks", "--hosts", tmp_path / "nowhere"),
    )
    assert (nobody.code, foo.code, nowhere.code) == (2, 2, 2)
    assert "it is not a manager" in nobody.err
    assert "foo: NodeDriver not found; known drivers:" in foo.err
    assert "no such folder" in nowhere.err
    assert "no leaks" not in nobody.err + foo.err + nowhere.err
