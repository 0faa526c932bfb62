"""The bootstrap script over SSH, against a real SSH server in this process that runs real commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncssh
import pytest

from remuda.providers.shared.drivers.spi import Address, DriverError
from remuda.providers.shared.jobs import ssh
from remuda.providers.shared.jobs.login import Login, host_keys, known_hosts, reachable
from remuda.providers.shared.jobs.ssh import run_script
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ssh_host import Host


class Heard:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pinned: list[Login] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    async def pin(self, login: Login) -> None:
        self.pinned.append(login)


@pytest.fixture
def heard() -> Heard:
    return Heard()


async def test_script_runs_and_its_output_is_logged(heard: Heard, tmp_path: Path) -> None:
    host = Host()
    async with host.serving():
        await run_script(
            host.login(), f'read line; echo "got $line"; touch {tmp_path}/done\n'.encode(), heard.say, heard.pin
        )
    assert (tmp_path / "done").exists()
    assert heard.lines == ["got "], "nothing the script starts reads the rest of it"
    assert heard.pinned == []


async def test_failing_script_is_reported_with_its_last_lines(heard: Heard) -> None:
    host = Host()
    async with host.serving():
        with pytest.raises(DriverError, match=r"exit code 4:\n(.*\n)*no python3 here") as error:
            await run_script(host.login(), b"seq 100; echo no python3 here >&2; exit 4", heard.say, heard.pin)
    assert len(str(error.value).splitlines()) < 20


async def test_changed_host_key_is_rejected(heard: Heard, tmp_path: Path) -> None:
    host = Host()
    async with host.serving():
        login = host.login(host_keys=[Host().public])
        with pytest.raises(DriverError, match="does not match the pinned key"):
            await run_script(login, f"touch {tmp_path}/done".encode(), heard.say, heard.pin)
    assert not (tmp_path / "done").exists()


async def test_host_with_several_keys_offers_pinned_key(heard: Heard) -> None:
    host = Host()
    host.more_host_keys = [asyncssh.generate_private_key(kind) for kind in ("ssh-rsa", "ecdsa-sha2-nistp256")]
    async with host.serving():
        await run_script(host.login(), b"echo hello", heard.say, heard.pin)
    assert heard.lines == ["hello"]


async def test_first_host_key_is_pinned_before_script_runs(heard: Heard, tmp_path: Path) -> None:
    host = Host()

    async def pin(login: Login) -> None:
        assert not (tmp_path / "done").exists()
        await heard.pin(login)

    async with host.serving():
        await run_script(host.login(host_keys=()), f"touch {tmp_path}/done".encode(), heard.say, pin)
    (pinned,) = heard.pinned
    assert list(pinned.host_keys) == [host.public]
    assert "pinned the server's host key" in heard.lines[0]
    assert host_keys(known_hosts(pinned)) == [host.public]


async def test_ssh_connection_is_retried_until_server_is_up(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_RETRY_SECONDS", 0.05)
    host = Host()
    async with host.serving():
        pass  # the port is known now, and nobody listens
    running = asyncio.create_task(run_script(host.login(), b"echo up", heard.say, heard.pin))
    async with asyncio.timeout(LIMIT_SECONDS):
        while not heard.lines:
            await asyncio.sleep(0.01)
        async with host.serving():
            await running
    assert heard.lines[0].startswith("waiting for SSH: 127.0.0.1")
    assert heard.lines[-1] == "up"


async def test_rejected_login_key_is_reported(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(ssh, "_LOGIN_SECONDS", 0.1)
    host = Host()
    other = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    async with host.serving():
        with pytest.raises(DriverError, match="rejects the SSH key of user root"):
            await run_script(host.login(private_key=other), b"echo", heard.say, heard.pin)


async def test_long_output_lines_are_split(heard: Heard) -> None:
    host = Host()
    async with host.serving():
        await run_script(host.login(), b"head -c 1000000 /dev/zero | tr '\\0' x", heard.say, heard.pin)
    assert max(map(len, heard.lines)) <= 4096


def test_external_address_is_tried_first() -> None:
    addresses = [Address("Hostname", "h"), Address("InternalIP", "10.0.0.1"), Address("ExternalIP", "192.0.2.1")]
    assert reachable([*addresses, Address("InternalIP", "192.0.2.1")]) == ["192.0.2.1", "10.0.0.1", "h"]


def test_known_hosts_has_openssh_format() -> None:
    login = Login(addresses=["192.0.2.1"], port=2222, user="u", private_key="", host_keys=["ssh-ed25519 AAAA"])
    assert known_hosts(login) == "[192.0.2.1]:2222 ssh-ed25519 AAAA\n"


def test_unreadable_private_key_is_not_shown_in_error() -> None:
    with pytest.raises(DriverError) as error:
        ssh._options(Login(addresses=["a"], port=22, user="u", private_key="hush-hush"))
    assert "hush" not in str(error.value)
