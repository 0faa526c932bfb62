"""Real hosts, made by hand: systemd, sshd and an address of their own, on a bridge that belongs to the test.

    async def test_something(network: Network) -> None:
        host = await network.host("one")
        assert (await host.run("hostname")) == "one\\n"

They are what servers are to a driver that makes none (`existing`, rancher-machine's `generic`), and where peers run
that want a machine of their own. Root on Linux only: without it such a test skips and says so, and fails in CI.
Whatever was made is removed by what was recorded, when the test ends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import random
import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncssh

from remuda.providers.shared.drivers import nspawn
from remuda.providers.shared.drivers.nspawn import Nspawn, NspawnOptions
from remuda.providers.shared.drivers.nspawn.commands import run
from remuda.providers.shared.drivers.nspawn.folder import Folder
from remuda.providers.shared.drivers.spi import TAG_OWNER, TAG_UID, Context, Order, Server
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.missing import missing

nspawn._BOOT_SECONDS = LIMIT_SECONDS  # hosts boot slowly beside other suites
_POOL = ipaddress.IPv4Network("198.18.0.0/15")  # set aside for tests of networks


def require_hosts() -> None:
    """This machine can have hosts, or the end of this test."""
    lacks = []
    if sys.platform != "linux" or os.geteuid() != 0:
        lacks.append("root on Linux")
    lacks += [name for name in ("systemd-nspawn", "ip", "cloud-init", "sshd") if _nowhere(name)]
    if lacks:
        missing(f"real hosts need {', '.join(lacks)}; install with: interop/packages hosts")


def _nowhere(program: str) -> bool:
    return shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin") is None


class _Forgetful:
    """Hosts are found by their folders."""

    value: Mapping[str, Any] = {}
    private_key = ""

    async def save_private_key(self, private_key: str) -> None:
        pass

    async def save(self, value: Mapping[str, Any]) -> None:
        pass


class CommandFailed(AssertionError):
    pass


class Host:
    def __init__(self, driver: Nspawn, order: Order, server: Server, folder: Path) -> None:
        self.name = order.name
        self.address = server.addresses[0].address
        assert server.ssh is not None
        self.access = server.ssh
        self.key_file = folder / f"{order.name}.key"
        self.key_file.touch(mode=0o600)
        self.key_file.write_text(server.ssh.private_key)
        self._driver = driver
        self._order = order

    async def run(self, command: str, *, check: bool = True, stdin: str = "", seconds: float = LIMIT_SECONDS) -> str:
        """What it printed, on either stream; with `check` a code other than 0 is an error."""
        async with self.connection() as connection:
            done = await connection.run(command, input=stdin, stderr=asyncssh.STDOUT, timeout=seconds)
        printed = str(done.stdout)
        if check and done.exit_status != 0:
            raise CommandFailed(f"{self.name}: {command}: ended with {done.exit_status}: {printed}")
        return printed

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncssh.SSHClientConnection]:
        (host_key,) = self.access.host_keys
        async with asyncssh.connect(
            self.address,
            self.access.port,
            username=self.access.user,
            client_keys=[asyncssh.import_private_key(self.access.private_key)],
            known_hosts=asyncssh.import_known_hosts(f"{self.address} {host_key}\n"),
            config=None,
            agent_path=None,
        ) as connection:
            yield connection

    async def remove(self) -> None:
        await self._driver.remove(self._order)


class Network:
    """A bridge with an address, and the hosts on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bridge = f"rmt{uuid.uuid4().hex[:8]}"
        self.subnet = ipaddress.IPv4Network("0.0.0.0/32")
        self.hosts: list[Host] = []

    @property
    def address(self) -> str:
        """Where hosts reach this machine."""
        return str(next(self.subnet.hosts()))

    async def open(self) -> None:
        self.subnet = await free_subnet()
        await run("ip", "link", "add", self.bridge, "type", "bridge")
        await run("ip", "address", "add", f"{self.address}/{self.subnet.prefixlen}", "dev", self.bridge)
        await run("ip", "link", "set", self.bridge, "up")

    async def close(self) -> None:
        for host in self.hosts:
            await host.remove()
        await run("ip", "link", "delete", self.bridge)

    async def host(
        self, name: str, *, user_data: bytes = b"", binds: Sequence[str] = (), system_calls: Sequence[str] = ()
    ) -> Host:
        """A new one, whose sshd answers. With user data, cloud-init is at work in it."""
        driver = Nspawn(
            NspawnOptions(
                bootstrap="cloud-init" if user_data else "ssh",
                bridge=self.bridge,
                subnet=str(self.subnet),
                binds=binds,
                system_calls=system_calls,
            ),
            Context(credentials={}, record=_Forgetful(), say=lambda text: None, directory=self.folder / "hosts"),
        )
        order = Order(
            driver="nspawn",
            action="create",
            name=name,
            hostname=name,
            namespace="lab",
            machine=name,
            uid=str(uuid.uuid4()),
            cluster="lab",
            owner=self.bridge,
        )
        try:
            host = Host(driver, order, await driver.create(order, user_data), self.folder)
        except BaseException:
            await driver.remove(order)
            raise
        self.hosts.append(host)
        return host


async def boot(host: Path, options: NspawnOptions) -> None:
    """Start a host again that has ended, given by its folder, as its driver does."""
    about = Folder(host).read()
    assert about is not None, host
    order = Order(
        driver="nspawn",
        action="create",
        name=about.name,
        hostname=about.hostname,
        namespace="lab",
        machine=about.name,
        uid=about.tags[TAG_UID],
        cluster="lab",
        owner=about.tags[TAG_OWNER],
    )
    context = Context(credentials={}, record=_Forgetful(), say=lambda text: None, directory=host.parents[1])
    await Nspawn(options, context).create(order, b"")


async def free_subnet() -> ipaddress.IPv4Network:
    """A /24 that nobody on this machine has an address in."""
    taken = [
        ipaddress.IPv4Address(entry["local"])
        for link in json.loads(await run("ip", "-json", "-4", "address"))
        for entry in link.get("addr_info", ())
    ]
    free = [subnet for subnet in _POOL.subnets(new_prefix=24) if not any(address in subnet for address in taken)]
    return random.choice(free)


@asynccontextmanager
async def a_network(folder: Path) -> AsyncIterator[Network]:
    """For fixtures: `async with a_network(tmp_path) as network: yield network`."""
    require_hosts()
    network = Network(folder)
    await network.open()
    try:
        yield network
    finally:
        await network.close()


@contextmanager
def open_network(folder: Path) -> Iterator[Network]:
    """The same for fixtures that are not async."""
    require_hosts()
    network = Network(folder)
    asyncio.run(network.open())
    try:
        yield network
    finally:
        asyncio.run(network.close())


async def until(host: Host, command: str, *, seconds: float = LIMIT_SECONDS) -> str:
    """What the command printed, once it ends well."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await host.run(command)
                except CommandFailed:
                    await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{host.name}: {command} did not end well in {seconds:g} s") from None


# Hosts as the kernel knows them, whoever made them.


def machines(folder: Path) -> list[int]:
    """Processes that are machines whose hosts lie below the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            machine = entry.name.isdigit() and (entry / "comm").read_text() == "systemd-nspawn\n"
            if machine and Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def mounts(folder: Path) -> list[str]:
    """Below the folder, in any mount namespace there is."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found |= {line for line in path.read_text().splitlines() if str(folder) in line}
        except OSError:
            continue
    return sorted(found)


def groups(*hosts: Path) -> list[Path]:
    """Control groups of hosts, given by their folders."""
    names = {Folder(host).machine for host in hosts}
    # Those of other tests go meanwhile, which `os.walk` passes over.
    return [Path(folder, one) for folder, below, _ in os.walk("/sys/fs/cgroup") for one in below if one in names]


def interfaces(bridge: str) -> set[str]:
    """What is connected to a bridge."""
    return {path.name for path in Path(f"/sys/class/net/{bridge}/brif").glob("*")}
