"""The driver nspawn: conformant on real hosts, which are looked at without its help."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncssh
import msgspec
import pytest

from remuda.lab.driver_conformance.confidence import Confidence
from remuda.lab.driver_conformance.kills import Kills
from remuda.lab.driver_conformance.life import Life
from remuda.lab.driver_conformance.model import Model
from remuda.providers.shared.drivers.nspawn import Nspawn
from remuda.providers.shared.drivers.nspawn.commands import run
from remuda.providers.shared.drivers.spi import BadOptions, Driver, DriverError, Order, Server
from tests.lab.conformance import Subject
from tests.lab.hosts import Network, free_subnet, groups, machines, mounts, require_hosts, until
from tests.lab.limits import LIMIT_SECONDS

_USER_DATA = (
    b"#cloud-config\n# \xc3\xa9t\xc3\xa9, a tab\there, $HOME `not run` \\n and no end of line at the end\n"
    b"runcmd: [[touch, /run/ran]]"
)


class NspawnHosts(Subject):
    driver = Nspawn
    user_data = _USER_DATA
    boot_seconds = 30.0
    by_the_clock = (0.1, 0.5)
    bad_options: Mapping[str, Mapping[str, Any]] = {
        "subnet": {"subnet": "198.18.0.0/33"},
        "bridge": {"bridge": "a/b"},
        "image": {"image": "/nowhere/at/all"},
        "binds": {"binds": ["relative:/there"]},
        "dns": {"dns": ["name.example"]},
    }

    def __init__(self, directory: Path, subnet: ipaddress.IPv4Network) -> None:
        super().__init__(directory)
        self.bridge = f"rmt{uuid4().hex[:8]}"
        self.options = {"bridge": self.bridge, "subnet": str(subnet)}
        self._subnet = subnet
        self._full = False
        self._names: set[str] = set()

    def act(self, order: Order, *, lost: bool = False) -> Driver[Any]:
        if self._full:
            small = ipaddress.IPv4Network((self._subnet.network_address, 30))
            order = msgspec.structs.replace(order, options={**order.options, "subnet": str(small)})
        return super().act(order, lost=lost)

    async def servers(self) -> list[str]:
        """Machines that run, as the kernel knows them."""
        return sorted(Path(os.readlink(f"/proc/{pid}/cwd")).name for pid in machines(self.hosts))

    async def things(self) -> list[str]:
        folders = [str(path) for path in (self.hosts / "nspawn").glob("*")]
        links = [link["ifname"] for link in json.loads(await run("ip", "-json", "link")) if self._ours(link)]
        book = [str(path) for path in Path("/run/remuda/bridges").glob(self.bridge)]
        left = groups(*(self.hosts / "nspawn" / name for name in self._names))
        return [*await self.servers(), *folders, *links, *book, *mounts(self.hosts), *map(str, left)]

    def order(self, **changes: Any) -> Order:
        order = super().order(**changes)
        self._names.add(order.name)
        return order

    def _ours(self, link: dict[str, Any]) -> bool:
        return self.bridge in (link["ifname"], link.get("master"))

    async def received(self, server: Server) -> bytes:
        """Once cloud-init has run it."""
        assert server.ssh is not None
        known = asyncssh.import_known_hosts(f"{server.addresses[0].address} {server.ssh.host_keys[0]}\n")
        key = asyncssh.import_private_key(server.ssh.private_key)
        async with asyncssh.connect(
            server.addresses[0].address, username="root", client_keys=[key], known_hosts=known, config=None
        ) as connection:
            await connection.run("cloud-init status --wait && test -e /run/ran", check=True)
            done = await connection.run("cat /var/lib/cloud/instance/user-data.txt", check=True, encoding=None)
            assert isinstance(done.stdout, bytes)
            return done.stdout

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """The pool of addresses is empty."""
        self._full = True
        taker = self.order()
        await self.act(taker).create(taker, self.user_data)
        try:
            yield
        finally:
            await self.act(taker).remove(taker)
            self._full = False


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[NspawnHosts]:
    require_hosts()
    subject = NspawnHosts(tmp_path, await free_subnet())
    yield subject
    for about in (subject.hosts / "nspawn").glob("*/host.json"):
        found = json.loads(about.read_text())
        order = subject.order(name=found["name"], uid=found["tags"]["remuda-uid"])
        await subject.act(order).remove(order)
    assert await subject.things() == []


class TestWithCloudInit(Life, Confidence, Model):
    pass


class TestKilled(Kills):
    @pytest.fixture
    def subject(self, subject: NspawnHosts) -> NspawnHosts:
        """Where less happens in the hosts meanwhile: the kills are many."""
        subject.options = {**subject.options, "bootstrap": "ssh"}
        return subject


async def test_host_gets_requested_hostname_limits_and_binds_but_no_local_secrets(
    subject: NspawnHosts, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "hello").write_text("from here")
    order = subject.order(
        hostname="its-name",
        options={
            **subject.options,
            "bootstrap": "ssh",
            "memory": 400,
            "cpus": 1,
            "dns": ["192.0.2.53"],
            "binds": [f"{tmp_path / 'shared'}:/mnt/shared:ro"],
        },
    )
    host = await subject.act(order).create(order, b"")
    said = await _ask(
        host,
        "hostname; cat /mnt/shared/hello; echo; touch /mnt/shared/x || echo read-only; cat /etc/resolv.conf; "
        f"ls -A /root /home /var/lib/cloud; ls {subject.hosts} || echo hidden; "
        "rm -r /var/lib/apt/lists; apt-get install -y curl && echo installable; find /var/log -name dpkg.log; "
        "systemctl is-system-running --wait",
    )
    assert said.splitlines()[:2] == ["its-name", "from here"]
    assert "read-only" in said
    assert "nameserver 192.0.2.53" in said
    assert "hidden" in said
    assert "installable" in said
    assert "dpkg.log" not in said
    assert said.splitlines()[-1] == "running"
    limits = {path.name: path.read_text().strip() for path in _limits(subject.hosts / "nspawn" / order.name)}
    assert limits, f"nothing is limited; said: {subject.said}"
    assert limits.get("memory.limit_in_bytes", limits.get("memory.max")) == str(400 << 20)


def _limits(host: Path) -> list[Path]:
    return [
        group / name
        for group in groups(host)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (group / name).exists()
    ]


async def _ask(server: Server, command: str) -> str:
    assert server.ssh is not None
    known = asyncssh.import_known_hosts(f"{server.addresses[0].address} {server.ssh.host_keys[0]}\n")
    key = asyncssh.import_private_key(server.ssh.private_key)
    async with asyncssh.connect(
        server.addresses[0].address, username=server.ssh.user, client_keys=[key], known_hosts=known, config=None
    ) as connection:
        return str((await connection.run(command, stderr=asyncssh.STDOUT, timeout=LIMIT_SECONDS)).stdout)


async def test_host_keeps_address_and_files_after_reboot_and_poweroff(
    subject: NspawnHosts,
) -> None:
    order = subject.order(options={**subject.options, "bootstrap": "ssh"})
    first = await subject.act(order).create(order, b"")
    boot = await _ask(first, "echo kept > /root/file; cat /proc/1/stat | cut -d ' ' -f 22")
    await _ask(first, "systemctl reboot")
    await _reaches(subject, order, "running", unlike=boot)
    await _ask(first, "systemctl poweroff")
    await _reaches(subject, order, "stopped")
    again = await subject.act(order).create(order, b"")
    assert again.addresses == first.addresses
    assert await _ask(again, "cat /root/file") == "kept\n"


async def _reaches(subject: NspawnHosts, order: Order, state: str, unlike: str = "") -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        server = await subject.act(order).find(order)
        assert server is not None
        if server.state == state:
            try:
                if not unlike or await _ask(server, "cat /proc/1/stat | cut -d ' ' -f 22") != unlike:
                    return
            except (OSError, asyncssh.Error):
                pass
        await asyncio.sleep(0.1)
    raise AssertionError(f"the host was not {state} after {LIMIT_SECONDS:.0f} s")


async def test_boot_failure_error_includes_end_of_host_console(
    subject: NspawnHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = subject.order(options={**subject.options, "bootstrap": "ssh", "binds": ["/dev/null:/usr/sbin/sshd"]})
    for seconds in (8, 32, 128):  # a slow machine may not have come to sshd after the first of them
        monkeypatch.setattr("remuda.providers.shared.drivers.nspawn._BOOT_SECONDS", float(seconds))
        with pytest.raises(DriverError) as failed:
            await subject.act(order).create(order, b"")
        assert f"after {seconds} s; end of its console: " in str(failed.value)
        if "ssh.service" in str(failed.value):
            break
        await subject.act(order).remove(order)
    assert re.search(r"does not listen at .*; end of its console: .*ssh\.service", str(failed.value))


async def test_remove_spares_unrelated_process_with_reused_pid(subject: NspawnHosts) -> None:
    order = subject.order(options={**subject.options, "bootstrap": "ssh"})
    await subject.act(order).create(order, b"")
    (machine,) = machines(subject.hosts)
    os.kill(machine, signal.SIGKILL)
    await _reaches(subject, order, "stopped")
    bystander = subprocess.Popen(["sleep", "3600"])
    try:
        leader = subject.hosts / "nspawn" / order.name / "leader"
        leader.write_text(f"{bystander.pid} 1\n")
        await subject.act(order).remove(order)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_bridge_not_created_by_driver_survives_host_removal(network: Network) -> None:
    host = await network.host("one")
    await host.remove()
    network.hosts.remove(host)
    assert Path(f"/sys/class/net/{network.bridge}").exists()


async def test_tarball_image_is_unpacked_once_and_removed_with_last_host(subject: NspawnHosts, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for folder in ("etc", "usr/bin", "usr/lib/systemd", "usr/sbin"):
        (tree / folder).mkdir(parents=True)
    (tree / "etc/os-release").write_text("ID=tiny\n")
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    for program in ("usr/lib/systemd/systemd", "usr/lib/systemd/systemd-networkd", "usr/sbin/sshd"):
        (tree / program).touch()
    tarball = shutil.make_archive(str(tmp_path / "tiny"), "gztar", tree)
    order = subject.order(options={**subject.options, "bootstrap": "ssh", "image": tarball})
    with pytest.raises(
        DriverError, match=r"exited while it was starting|failed to start"
    ):  # there is nothing to boot in it
        await subject.act(order).create(order, b"")
    assert len(list((subject.hosts / "nspawn" / ".images").glob("*/etc/os-release"))) == 1
    await subject.act(order).remove(order)
    assert list((subject.hosts / "nspawn").iterdir()) == []


async def test_image_without_systemd_is_rejected_with_advice(subject: NspawnHosts, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    order = subject.order(options={**subject.options, "image": str(tmp_path / "bare")})
    with pytest.raises(BadOptions, match=r"image: usr/lib/systemd/systemd is missing; install systemd in the image"):
        await subject.act(order).create(order, b"")


async def test_cloud_init_runs_supplied_user_data(network: Network) -> None:
    host = await network.host("one", user_data=b"#cloud-config\nruncmd: ['hostname > /run/ran']\n")
    assert await until(host, "cat /run/ran") == "one\n"
