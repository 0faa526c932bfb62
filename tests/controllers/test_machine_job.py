"""`remuda machine-job`, the real program: run by the runner in a Job, and alone where it is to be killed."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import asyncssh
import msgspec
import pytest

from remuda.jobs import DIRECTORY_VARIABLE, ROOT_VARIABLE
from remuda.jobs.in_process import InProcess
from remuda.jobs.runner import JobRunner
from remuda.kube.core import ROLE_BINDINGS, ROLES, SECRET, SECRETS, SERVICE_ACCOUNTS
from remuda.providers.machine import job as machine_job
from remuda.providers.shared.drivers import sim, simcloud
from remuda.providers.shared.drivers.simcloud import FileCloud, SimCloud
from remuda.providers.shared.drivers.spi import TAG_UID, Address, Driver, DriverError, Options, Order, Server, SshAccess
from remuda.providers.shared.jobs import kept_log
from remuda.providers.shared.jobs.execution import Job
from remuda.providers.shared.jobs.log_redaction import Scrubber
from remuda.providers.shared.jobs.state import STATE, State, StateSecret, read
from remuda.runtime.manager import Manager
from remuda.runtime.steps import CRASHED
from tests.controllers.engine import PATIENCE_SECONDS, Engine, condition, is_true
from tests.controllers.jobs import Runner, ended, finished, job, pod_of, put
from tests.lab.drivers import ExistingServers
from tests.lab.existing_servers import USER, stop_all
from tests.lab.ssh_host import Host

Json = dict[str, Any]

SCRIPT = b"#!/bin/sh\nexport CATTLE_TOKEN=0123456789abcdef0123\necho hello\n"
STATE_SECRET = "m-1-machine-state"
MOUNTS = [
    {"name": "order", "mountPath": "/run/secrets/machine"},
    {"name": "credentials", "mountPath": "/run/secrets/credentials"},
]
VOLUMES = [
    {"name": "order", "secret": {"secretName": "order"}},
    {"name": "credentials", "secret": {"secretName": "credentials"}},
]


def an_order(action: Any = "create", driver: str = "sim", **options: Any) -> Order:
    return Order(
        driver=driver, action=action, name="m-1", hostname="m-1", namespace="", machine="m-1", uid="uid-1",
        cluster="c", owner="us", options=options, state_secret=STATE_SECRET, local_addresses=True,
    )  # fmt: skip


async def ask(
    engine: Engine,
    namespace: str,
    order: Order,
    credentials: dict[str, str] | None = None,
    script: bytes = SCRIPT,
) -> None:
    """Everything but the Job."""
    order = msgspec.structs.replace(order, namespace=namespace)
    if await engine.get(SECRETS, namespace, STATE_SECRET) is None:
        state = {"metadata": {"name": STATE_SECRET}, "type": "rke.cattle.io/machine-state"}
        await engine.create(SECRETS, namespace, state)
    files = {"order.json": msgspec.json.encode(order), "value": script, "format": b"script"}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    await put(engine, SECRETS, namespace, "order", {"data": data})
    await put(engine, SECRETS, namespace, "credentials", {"stringData": credentials or {}})
    await put(engine, SERVICE_ACCOUNTS, namespace, "provision", {})
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [STATE_SECRET],
        "verbs": ["get", "update", "patch"],
    }
    await put(engine, ROLES, namespace, "provision", {"rules": [rule]})
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "provision"},
        "subjects": [{"kind": "ServiceAccount", "name": "provision", "namespace": namespace}],
    }
    await put(engine, ROLE_BINDINGS, namespace, "provision", binding)


def provision(name: str, **more: Any) -> Json:
    container = {"volumeMounts": MOUNTS, "terminationMessagePolicy": "FallbackToLogsOnError", **more}
    return job(name, container=container, pod={"volumes": VOLUMES, "serviceAccountName": "provision"})


async def state_of(engine: Engine, namespace: str) -> State:
    found = await engine.get(SECRETS, namespace, STATE_SECRET)
    assert found is not None
    return read({STATE: base64.b64decode(found["data"][STATE])})


class Program(Runner):
    """The real program, not a stand-in for it."""

    def setup(self, manager: Manager) -> None:
        self.runner = JobRunner(manager, self.settings)

    def cloud(self) -> FileCloud:
        return FileCloud(self.settings.hosts / "sim" / "default.jsonl")


@pytest.fixture
def program(engine: Engine, tmp_path: Path) -> Program:
    return Program(engine, tmp_path)


async def kept(engine: Engine, namespace: str) -> str:
    """The logs in the state Secret, which stay when the Jobs are deleted."""
    secret = await engine.get(SECRETS, namespace, STATE_SECRET)
    assert secret is not None
    return kept_log.in_secret({name: base64.b64decode(value) for name, value in secret["data"].items()})


async def test_create_job_makes_server_and_remove_job_deletes_server(engine: Engine, program: Program) -> None:
    namespace = await engine.namespace()
    await ask(engine, namespace, an_order(bootSeconds=3, zone="z-1"))
    async with engine.running(namespace, program.setup):
        await program.submit(namespace, provision("create"))
        assert is_true(await finished(engine, namespace, "create"), "Complete")
        made = await state_of(engine, namespace)
        (server,) = await program.cloud().servers()
        log = await program.log(await pod_of(engine, namespace, "create"))
        await ask(engine, namespace, an_order("remove"))
        await program.submit(namespace, provision("remove"))
        assert is_true(await finished(engine, namespace, "remove"), "Complete")
    assert (made.phase, made.provider_id, made.failure_domain) == ("created", "sim://default/m-1", "z-1")
    assert made.by_user_data
    assert made.addresses[0].address == server.address
    assert server.tags[TAG_UID] == "uid-1"
    assert server.user_data.startswith(b"#cloud-config\n")
    assert "server m-1 is starting; waiting until it is running" in log
    assert await program.cloud().servers() == []
    assert (await state_of(engine, namespace)).phase == "removed"
    assert await kept(engine, namespace) == log + "removing server m-1 with driver sim\nserver m-1 is removed\n"


async def test_infrastructure_error_is_reported_and_next_job_succeeds(engine: Engine, program: Program) -> None:
    namespace = await engine.namespace()
    await ask(engine, namespace, an_order(failures=1))
    async with engine.running(namespace, program.setup):
        await program.submit(namespace, provision("first"))
        assert is_true(await finished(engine, namespace, "first"), "Failed")
        end = ended(await pod_of(engine, namespace, "first"))
        assert end["exitCode"] == 1
        assert end["message"].startswith("the simulated cloud did not create m-1")
        assert (await state_of(engine, namespace)).phase == "creating", "the intent stays: something may have been made"
        await program.submit(namespace, provision("second"))
        assert is_true(await finished(engine, namespace, "second"), "Complete")


@pytest.mark.parametrize(
    ("order", "credentials", "words"),
    [
        (an_order(bootSeconds="soon"), {}, "bootSeconds: expected `float`, got `str`"),
        (an_order(bootSecnds=1), {}, "driver sim has no option bootSecnds"),
        (an_order(driver="nosuch"), {}, "driver nosuch not found; installed drivers:"),
        (an_order(), {"token": "wrong"}, "rejects the token"),
    ],
)
async def test_invalid_order_exits_with_code_3_and_reason(
    engine: Engine, program: Program, order: Order, credentials: dict[str, str], words: str
) -> None:
    namespace = await engine.namespace()
    await ask(engine, namespace, order, credentials)
    async with engine.running(namespace, program.setup):
        await program.submit(namespace, provision("create"))
        failed = await finished(engine, namespace, "create")
        end = ended(await pod_of(engine, namespace, "create"))
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert end["exitCode"] == 3
    assert words in end["message"]


async def test_secrets_are_in_no_log_and_no_status(engine: Engine, program: Program) -> None:
    namespace = await engine.namespace()
    secret = "hush-hush-9000"
    await ask(engine, namespace, an_order(refuses=f"no: {secret} and 0123456789abcdef0123"), {"token": secret})
    async with engine.running(namespace, program.setup):
        await program.submit(namespace, provision("create"))
        failed = await finished(engine, namespace, "create")
        pod = await pod_of(engine, namespace, "create")
        told = await program.log(pod) + str(pod) + str(failed) + await kept(engine, namespace)
    assert "no: *** and ***" in told
    assert secret not in told
    assert "0123456789abcdef" not in told


async def test_in_process_job_creates_server_without_files_on_disk(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    runner = Runner(engine, tmp_path, concurrency=100)
    cloud = sim.clouds["many"] = SimCloud()

    def setup(manager: Manager) -> None:
        program = machine_job.in_process(manager.client, runner.settings.hosts)
        runner.runner = JobRunner(manager, runner.settings, InProcess(program))

    await ask(engine, namespace, an_order(cloud="many"))
    try:
        async with engine.running(namespace, setup):
            await runner.submit(namespace, provision("create"))
            assert is_true(await finished(engine, namespace, "create"), "Complete")
            log = await runner.log(await pod_of(engine, namespace, "create"))
        assert log.splitlines()[-1] == "server m-1 is created"
        assert [server.name for server in await cloud.servers()] == ["m-1"]
        assert not runner.settings.directory.exists(), "nothing of it is on disk"
    finally:
        del sim.clouds["many"]


async def test_local_host_does_not_inherit_job_resource_limits(engine: Engine, program: Program) -> None:
    namespace = await engine.namespace()
    script = b"#!/bin/sh\necho data $(ulimit -d), niceness $(nice)\nexit 9\n"
    await ask(engine, namespace, an_order(driver="process"), script=script)
    limits = {"limits": {"memory": "512Mi"}}
    async with engine.running(namespace, program.setup):
        await program.submit(namespace, provision("create", resources=limits))
        assert is_true(await finished(engine, namespace, "create"), "Failed")
        log = await program.log(await pod_of(engine, namespace, "create"))
    assert f"data unlimited, niceness {os.getpriority(os.PRIO_PROCESS, 0)}" in log


class KeylessDriver(Driver[Options]):
    """A driver whose servers have no user data, and whose host keys it does not know."""

    name = "barn"
    doc = "For this test."
    options_type = Options
    host: ClassVar[Host]
    id: ClassVar[str] = "1"

    @property
    def takes_user_data(self) -> bool:
        return False

    async def create(self, order: Order, user_data: bytes) -> Server:
        login = self.host.login()
        access = SshAccess(user=login.user, port=login.port, private_key=login.private_key)
        return Server(
            id=self.id, name=order.name, state="running", addresses=[Address("InternalIP", "127.0.0.1")], ssh=access
        )

    async def find(self, order: Order) -> Server | None:
        return await self.create(order, b"")

    async def remove(self, order: Order) -> None:
        raise NotImplementedError

    async def owned(self, owner: str) -> list[Server]:
        return []


async def test_unknown_host_key_is_pinned_and_changed_key_is_rejected(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = await engine.namespace()
    order = msgspec.structs.replace(an_order(driver="barn"), namespace=namespace)
    await ask(engine, namespace, order)
    KeylessDriver.host = Host()
    said: list[str] = []

    async def run() -> None:
        await Job(order, KeylessDriver, {}, engine.client, tmp_path, said.append, Scrubber()).run(SCRIPT)

    async with KeylessDriver.host.serving():
        await run()
    made = await state_of(engine, namespace)
    secret = await engine.get(SECRETS, namespace, STATE_SECRET)
    assert (made.phase, made.by_user_data, made.ssh_user) == ("bootstrapped", False, "root")
    assert secret is not None
    assert KeylessDriver.host.public in base64.b64decode(secret["data"]["known_hosts"]).decode()
    kept = asyncssh.import_private_key(base64.b64decode(secret["data"]["id_rsa"]))
    assert kept.public_data == KeylessDriver.host.key.public_data
    assert "hello" in said

    impostor = Host()
    impostor.key, KeylessDriver.host = KeylessDriver.host.key, impostor
    await engine.patch(SECRETS, namespace, STATE_SECRET, {"stringData": {STATE: '{"phase": "created", "id": "1"}'}})
    async with impostor.serving():
        with pytest.raises(DriverError, match="does not match the pinned key"):
            await run()
        monkeypatch.setattr(KeylessDriver, "id", "2")  # the driver itself says that it is another server
        await run()
    assert (await state_of(engine, namespace)).phase == "bootstrapped"


async def test_driver_private_key_is_stored_apart_from_cached_state(engine: Engine) -> None:
    namespace = await engine.namespace()
    order = msgspec.structs.replace(an_order(), namespace=namespace)
    await ask(engine, namespace, order)
    stored = await StateSecret.open(engine.client, order)
    await stored.save({"life": 1})
    await stored.save_private_key("the very secret key")
    secret = await engine.client.get(SECRETS, namespace, STATE_SECRET)
    data = SECRET.decode(secret).data
    assert data["id_rsa"] == b"the very secret key"
    assert b"very secret" not in data[STATE]
    again = await StateSecret.open(engine.client, order)
    assert (again.private_key, again.value) == ("the very secret key", {"life": 1})


# ---- killed ---------------------------------------------------------------------------------------------------------


class ContainerProgram:
    """The program as a container would run it."""

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        order: Order,
        *,
        script: bytes = SCRIPT,
        credentials: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self._engine = engine
        (directory / "root" / "dev").mkdir(parents=True)
        self._mount("machine", {"order.json": msgspec.json.encode(order), "value": script})
        self._mount("credentials", {name: text.encode() for name, text in (credentials or {}).items()})

    def _mount(self, name: str, files: Mapping[str, bytes]) -> None:
        mounted = self.directory / "root" / "run" / "secrets" / name
        mounted.mkdir(parents=True)
        for file, content in files.items():
            (mounted / file).write_bytes(content)

    async def run(self, crash_at: str = "") -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "remuda.cli.main", "machine-job"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                **os.environ,
                "KUBECONFIG": str(self._engine.kubeconfig),
                "REMUDA_CRASH_AT": crash_at,
                ROOT_VARIABLE: str(self.directory / "root"),
                DIRECTORY_VARIABLE: str(self.directory / "hosts"),
            },
        )
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
        assert process.returncode is not None
        return process.returncode, out.decode()

    def cloud(self) -> simcloud.FileCloud:
        return FileCloud(self.directory / "hosts" / "sim" / "default.jsonl")


CREATING = ("machinejob.record-intent", "machinejob.create-server", "machinejob.record-server")
REMOVING = ("machinejob.remove-server", "machinejob.record-removal")


async def kill_at_each(container_program: ContainerProgram, steps: Sequence[str]) -> None:
    """One attempt after the other, each killed a little later than the one before."""
    for point in [f"{name}:{when}" for name in steps for when in ("before", "after")]:
        code, said = await container_program.run(point)
        assert code == -signal.SIGKILL, said
        assert f"{CRASHED} {point}" in said


async def test_repeatedly_killed_create_job_makes_one_server(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    order = msgspec.structs.replace(an_order(), namespace=namespace)
    await ask(engine, namespace, order)
    container_program = ContainerProgram(engine, tmp_path, order)
    await kill_at_each(container_program, CREATING[:2])
    assert len(await container_program.cloud().servers()) == 1
    assert (await state_of(engine, namespace)).phase == "creating", "made, and not noted"
    await kill_at_each(container_program, CREATING[2:])
    assert (await container_program.run())[0] == 0
    assert len(await container_program.cloud().servers()) == 1
    made = await state_of(engine, namespace)
    assert (made.phase, made.id) == ("created", "1")


async def test_repeatedly_killed_remove_job_leaves_no_server(engine: Engine, tmp_path: Path) -> None:
    namespace = await engine.namespace()
    create = msgspec.structs.replace(an_order(), namespace=namespace)
    await ask(engine, namespace, create)
    assert (await ContainerProgram(engine, tmp_path / "create", create).run())[0] == 0
    (tmp_path / "create" / "hosts").rename(tmp_path / "hosts")
    container_program = ContainerProgram(engine, tmp_path, msgspec.structs.replace(create, action="remove"))
    await kill_at_each(container_program, REMOVING)
    assert (await container_program.run())[0] == 0
    assert await container_program.cloud().servers() == []
    assert (await state_of(engine, namespace)).phase == "removed"


async def test_job_denies_connection_to_loopback_address(engine: Engine, tmp_path: Path) -> None:
    namespace, existing_servers = await engine.namespace(), ExistingServers(tmp_path, count=1)
    await existing_servers.start()
    order = an_order(driver="existing", **existing_servers.options)
    order = msgspec.structs.replace(order, namespace=namespace, local_addresses=False)
    await ask(engine, namespace, order)
    try:
        code, said = await ContainerProgram(
            engine, tmp_path / "job", order, credentials=existing_servers.credentials
        ).run()
    finally:
        await stop_all(existing_servers.ssh_servers)
    assert code == 3, said
    assert "is denied: it is a loopback address" in said
    assert not existing_servers.ssh_servers[0].claim.exists()


async def test_killed_ssh_bootstrap_is_repeated_until_recorded(engine: Engine, tmp_path: Path) -> None:
    namespace, existing_servers = await engine.namespace(), ExistingServers(tmp_path, count=1)
    await existing_servers.start()
    ssh_server = existing_servers.ssh_servers[0]
    sudo = tmp_path / "bin" / "sudo"  # for whoever runs the tests without being root
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    sudo.chmod(0o755)
    ssh_server.environment = {**ssh_server.environment, "PATH": f"{sudo.parent}:{ssh_server.environment['PATH']}"}
    order = msgspec.structs.replace(an_order(driver="existing", **existing_servers.options), namespace=namespace)
    await ask(engine, namespace, order)
    script = f"echo run >> {ssh_server.root}/runs; echo bootstrapped\n".encode()
    container_program = ContainerProgram(
        engine, tmp_path / "job", order, script=script, credentials=existing_servers.credentials
    )
    try:
        await kill_at_each(container_program, ("machinejob.run-script", "machinejob.record-bootstrap"))
        code, said = await container_program.run()
    finally:
        await stop_all(existing_servers.ssh_servers)
    assert code == 0, said
    assert "the bootstrap script has already run" in said
    assert existing_servers.private_key.splitlines()[1] not in said
    made = await state_of(engine, namespace)
    assert (made.phase, made.by_user_data, made.ssh_user) == ("bootstrapped", False, USER)
    assert ssh_server.claim.exists()
    assert (ssh_server.root / "runs").read_text().splitlines() == ["run"] * 3, "only what is noted is not done again"
