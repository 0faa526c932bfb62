"""The driver existing against real SSH servers: conformant; never shares a server; gives it back as it was."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import asyncssh
import msgspec
import pytest

from remuda.providers.bootstrap.assets import agent_zipapp
from remuda.providers.shared.drivers import existing
from remuda.providers.shared.drivers.existing import claims, remote
from remuda.providers.shared.drivers.existing.remote import SshAddress
from remuda.providers.shared.drivers.spi import BadOptions, DriverError, Order
from tests.lab.conformance import Conformance
from tests.lab.drivers import ExistingServers, processes_below
from tests.lab.existing_servers import USER, stop_all
from tests.lab.limits import LIMIT_SECONDS


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[ExistingServers]:
    found = ExistingServers(tmp_path)
    await found.start()
    yield found
    await stop_all(found.ssh_servers)


class TestConformance(Conformance):
    pass


def only(subject: ExistingServers, count: int) -> Mapping[str, Any]:
    return {**subject.options, "addresses": [ssh_server.name for ssh_server in subject.ssh_servers[:count]]}


async def taken(subject: ExistingServers, order: Order) -> str:
    return (await subject.act(order).create(order, b"")).id


def uninstalling(subject: ExistingServers, number: int, script: str) -> None:
    program = subject.ssh_servers[number].root / "usr/local/bin/remuda-agent-uninstall.sh"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)


async def test_server_is_claimed_released_without_agent_and_claimed_again(subject: ExistingServers) -> None:
    ssh_server = subject.ssh_servers[0]
    agent = subject.directory / "remuda-agent.pyz"
    agent.write_bytes(agent_zipapp())
    for _ in range(2):
        order = subject.order(options=only(subject, 1))
        server = await subject.act(order).create(order, b"")
        claim = json.loads(ssh_server.claim.read_text())
        assert (claim["uid"], claim["machine"]) == (order.uid, f"default/{order.machine}")
        assert ssh_server.claim.stat().st_mode & 0o777 == 0o600
        assert [address.address for address in server.addresses] == [ssh_server.address, f"pet-{ssh_server.address}"]
        installed = await asyncssh.connect(
            ssh_server.address, ssh_server.port, username=USER, client_keys=[subject.key], known_hosts=None, config=[]
        )
        async with installed:
            environment = "CATTLE_REMOTE_ENABLED=false CATTLE_LOCAL_ENABLED=true"
            await installed.run(f"{environment} {sys.executable} {agent} install", check=True, timeout=LIMIT_SECONDS)
        assert processes_below(ssh_server.root.parent)
        await subject.act(order).remove(order)
        assert processes_below(ssh_server.root.parent) == []
        assert [name for name in ssh_server.files() if (ssh_server.root / name).is_file()] == []


async def test_server_with_foreign_agent_is_rejected(subject: ExistingServers) -> None:
    config = subject.ssh_servers[0].root / "etc/rancher/agent/config.yaml"
    config.parent.mkdir(parents=True)
    config.touch()
    order = subject.order(options=only(subject, 1))
    with pytest.raises(DriverError, match="runs an agent of another management server"):
        await taken(subject, order)
    await subject.act(order).remove(order)
    assert config.exists()
    assert not subject.ssh_servers[0].claim.parent.exists()


async def test_leftovers_of_interrupted_install_are_removed(subject: ExistingServers) -> None:
    order = subject.order(options=only(subject, 1))
    await taken(subject, order)
    for name in ("etc/rancher/agent/config.yaml", "var/lib/rancher/agent/interlock/restart-pending"):
        path = subject.ssh_servers[0].root / name
        path.parent.mkdir(parents=True)
        path.touch()
    assert await taken(subject, order) == subject.ssh_servers[0].name
    await subject.act(order).remove(order)
    assert [name for name in await subject.things() if "agent" in name or "remuda" in name] == []


async def test_two_management_planes_never_share_a_server(subject: ExistingServers) -> None:
    orders = [subject.order(owner=f"plane-{number}", options=only(subject, 3)) for number in range(4)]
    found = await asyncio.gather(*(taken(subject, order) for order in orders), return_exceptions=True)
    refused = [str(error) for error in found if isinstance(error, DriverError)]
    assert sorted(each for each in found if isinstance(each, str)) == sorted(
        ssh_server.name for ssh_server in subject.ssh_servers
    )
    assert len(refused) == 1
    assert refused[0].startswith("no free server: ")
    assert all(ssh_server.name in refused[0] for ssh_server in subject.ssh_servers)


async def test_taken_server_error_names_owner(subject: ExistingServers) -> None:
    first, second = subject.order(options=only(subject, 1)), subject.order(options=only(subject, 1))
    name = await taken(subject, first)
    with pytest.raises(DriverError) as refused:
        await taken(subject, second)
    assert str(refused.value) == f"no free server: {name} is already claimed by default/{first.machine}"
    await subject.act(second).remove(second)
    assert await subject.servers() == [name]


async def test_unreachable_server_is_skipped_and_named_in_error(subject: ExistingServers) -> None:
    await subject.ssh_servers[0].stop()
    order = subject.order(options=only(subject, 2))
    assert await taken(subject, order) == subject.ssh_servers[1].name
    other = subject.order(options=only(subject, 2))
    with pytest.raises(DriverError, match=f"cannot connect to {subject.ssh_servers[0].name}: "):
        await taken(subject, other)


async def test_unreachable_server_is_not_considered_released(subject: ExistingServers) -> None:
    order = subject.order(options=only(subject, 1))
    await taken(subject, order)
    await subject.ssh_servers[0].stop()
    for act in (subject.act(order).remove(order), subject.act(order).find(order), taken(subject, order)):
        with pytest.raises(DriverError, match=f"cannot connect to {subject.ssh_servers[0].name}: "):
            await act
    await subject.ssh_servers[0].start(subject.key)
    await subject.act(order).remove(order)
    assert await subject.things() == []
    await subject.ssh_servers[0].stop()
    await subject.act(order).remove(order)  # given back: nobody has to be asked


async def test_failed_agent_uninstall_keeps_claim_and_reports_error(subject: ExistingServers) -> None:
    order = subject.order(options=only(subject, 1))
    name = await taken(subject, order)
    uninstalling(subject, 0, "#!/bin/sh\necho the unit is busy >&2\nexit 4\n")
    with pytest.raises(DriverError, match=f"{name}: cannot uninstall the agent: the unit is busy"):
        await subject.act(order).remove(order)
    assert await subject.servers() == [name]


async def test_remove_waits_for_claim_in_flight(subject: ExistingServers) -> None:
    order = subject.order(options=only(subject, 1))
    ssh_server = subject.ssh_servers[0]
    await subject.record(order).save({"address": ssh_server.name, "hostKeys": [ssh_server.public_key]})

    async def arrive() -> None:
        await asyncio.sleep(existing._SETTLE_SECONDS / 3)
        ssh_server.claim.parent.mkdir()
        ssh_server.claim.write_bytes(msgspec.json.encode(claims.of_order(order)))

    await asyncio.gather(arrive(), subject.act(order).remove(order))
    assert await subject.things() == []


class TestHostKeys:
    async def test_server_with_unknown_host_key_is_rejected(self, subject: ExistingServers) -> None:
        other = " ".join(asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()[:2])
        order = subject.order(options={**only(subject, 1), "hostKeys": [other]})
        with pytest.raises(DriverError, match="host key is not one of hostKeys"):
            await taken(subject, order)
        assert subject.ssh_servers[0].logins == 0

    async def test_host_key_option_may_be_per_server_or_global(self, subject: ExistingServers) -> None:
        first, second, _ = subject.ssh_servers
        keys = [f"{first.address} {first.public_key} its comment", f"{second.name} {second.public_key}"]
        order = subject.order(options={**subject.options, "hostKeys": keys})
        seen = await subject.act(order).owned(order.owner)
        assert seen == []
        assert [ssh_server.logins for ssh_server in subject.ssh_servers] == [1, 1, 0]
        everywhere = subject.order(
            options={**subject.options, "hostKeys": [ssh_server.public_key for ssh_server in subject.ssh_servers]}
        )
        await subject.act(everywhere).owned(order.owner)
        assert [ssh_server.logins for ssh_server in subject.ssh_servers] == [2, 2, 1]

    async def test_host_key_is_pinned_at_claim(self, subject: ExistingServers) -> None:
        order, ssh_server = subject.order(options=only(subject, 1)), subject.ssh_servers[0]
        server = await subject.act(order).create(order, b"")
        assert server.ssh is not None
        assert list(server.ssh.host_keys) == [ssh_server.public_key]
        await ssh_server.stop()
        ssh_server.host_key = asyncssh.generate_private_key("ssh-ed25519")
        await ssh_server.start(subject.key)
        logins = ssh_server.logins
        with pytest.raises(DriverError, match="it may be another server"):
            await subject.act(order).remove(order)
        assert ssh_server.logins == logins


# Made by ssh-keygen for this test; it opens nothing.
OPENSSH_LOCKED = """\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABC+Aox+fi
hOElswTydVM5qRAAAAEAAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIJDTl1x4wy0IY4Vk
3ZAkMqN7FMk/r0GnPUmT70qrMdX8AAAAkEFKNOAffUP6WeY289oOeqDVe03D3sHrd68mms
24OOMGTFFt6AKp0KVEk4rJ98c0TF2Dd/uDvzFboTYEX+qYeM1vUEr2DMpEAHPWSAw7WTTm
4XG5c/8kscUEykJRIT5GOzUOa3xlivzfxhL+fVQJUSStTiZ4L6Ezdutq4U24/FQ/x40XI6
FQUVyp7Fxvp+hs2g==
-----END OPENSSH PRIVATE KEY-----
"""


class TestLogin:
    async def test_rejected_login_error_names_options(self, subject: ExistingServers) -> None:
        stranger = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
        order = subject.order(options={**only(subject, 1), "privateKey": stranger})
        with pytest.raises(DriverError, match=r"rejects the key for user cowhand \(sshUser, privateKey\)"):
            await taken(subject, order)

    async def test_non_root_user_uses_sudo(self, subject: ExistingServers) -> None:
        order, ssh_server = subject.order(options=only(subject, 1)), subject.ssh_servers[0]
        programs = subject.directory / "bin"
        programs.mkdir()
        # No root is named, so this would be done to the machine the tests run on: this sudo does nothing.
        for name, script in {"id": "echo 1000", "sudo": 'echo "sudo $*" >&2; exit 1'}.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        ssh_server.environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
        with pytest.raises(DriverError, match="the command failed: sudo -n sh -s"):
            await taken(subject, order)

    async def test_login_banner_is_tolerated_and_non_shell_rejected(self, subject: ExistingServers) -> None:
        order, ssh_server = subject.order(options=only(subject, 1)), subject.ssh_servers[0]
        ssh_server.login_says = "Welcome to this server\n{}\n"
        assert await taken(subject, order) == ssh_server.name
        ssh_server.shell = "/bin/true"
        with pytest.raises(DriverError, match="did not run the script"):
            await subject.act(order).find(order)

    async def test_unreadable_claim_is_not_overwritten(self, subject: ExistingServers) -> None:
        order, ssh_server = subject.order(options=only(subject, 1)), subject.ssh_servers[0]
        ssh_server.claim.parent.mkdir()
        ssh_server.claim.write_text("{torn")
        with pytest.raises(DriverError, match=r"cannot decode its /etc/remuda/claim\.json"):
            await taken(subject, order)
        assert ssh_server.claim.read_text() == "{torn"

    async def test_key_with_passphrase_is_rejected(self, subject: ExistingServers) -> None:
        for locked in (OPENSSH_LOCKED, subject.key.export_private_key("pkcs8-pem", passphrase="sesame").decode()):
            order = subject.order(options={**only(subject, 1), "privateKey": locked})
            with pytest.raises(BadOptions, match="privateKey: the key has a passphrase"):
                await subject.act(order).check(order)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pet.example.org", SshAddress("pet.example.org", 2222)),
        ("pet.example.org:22", SshAddress("pet.example.org", 22)),
        ("192.0.2.1:1022", SshAddress("192.0.2.1", 1022)),
        ("2001:db8::1", SshAddress("2001:db8::1", 2222)),
        ("[2001:db8::1]", SshAddress("2001:db8::1", 2222)),
        ("[2001:db8::1]:22", SshAddress("2001:db8::1", 22)),
    ],
)
def test_address_is_parsed_with_default_port(text: str, found: SshAddress) -> None:
    assert remote.place(text, 2222, "address") == found
    assert remote.place(str(found), 22, "address") == found


@pytest.mark.parametrize(
    "text", ["", "a b", "root@pet", "pet:ssh", "pet:0", "pet:65536", "a:b:c", "[pet", "http://pet"]
)
def test_invalid_address_is_rejected_by_option_name(text: str) -> None:
    with pytest.raises(BadOptions, match=r"^address: "):
        remote.place(text, 22, "address")
