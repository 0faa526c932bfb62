"""Lifecycle tests of a server: created once, found, running, reachable, removed; and ownership."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncssh
import msgspec

from remuda.lab.driver_conformance.subject import Subject
from remuda.providers.shared.drivers.spi import TAG_OWNER, BadOptions, DriverError, Order, Server

_LOOK_SECONDS = 0.05


async def running(subject: Subject, order: Order) -> Server:
    """Return the server as soon as it runs."""
    server: Server | None = None
    for _ in range(int(subject.boot_seconds / _LOOK_SECONDS) + 1):
        server = await subject.act(order).find(order)
        assert server is not None, "a server that was created is not found"
        assert server.state != "failed", "the server has failed"
        if server.state == "running":
            return server
        await asyncio.sleep(_LOOK_SECONDS)
    raise AssertionError(f"the server does not run after {subject.boot_seconds} s: {server}")


async def made(subject: Subject, **changes: Any) -> tuple[Order, Server]:
    order = subject.order(**changes)
    return order, await subject.act(order).create(order, subject.user_data)


async def _complaint(subject: Subject, order: Order) -> str:
    try:
        await subject.act(order).check(order)
    except BadOptions as error:
        return str(error)
    return ""


class Life:
    async def test_created_server_exists_and_removed_server_does_not(self, subject: Subject) -> None:
        order, server = await made(subject)
        assert list(await subject.servers()) == [server.id]
        assert server.name == order.name
        await subject.act(order).remove(order)
        assert list(await subject.things()) == []

    async def test_repeated_create_yields_one_server(self, subject: Subject) -> None:
        order, first = await made(subject)
        second = await subject.act(order).create(order, subject.user_data)
        assert (first.id, first.provider_id) == (second.id, second.provider_id)
        assert list(await subject.servers()) == [first.id]

    async def test_server_is_found_by_name_and_tag_without_record(self, subject: Subject) -> None:
        order, first = await made(subject)
        again = await subject.act(order, lost=True).create(order, subject.user_data)
        assert (again.id, list(await subject.servers())) == (first.id, [first.id])
        await subject.act(order, lost=True).remove(order)
        assert list(await subject.things()) == []

    async def test_two_machines_have_separate_servers(self, subject: Subject) -> None:
        (one, first), (_, second) = await made(subject), await made(subject)
        assert sorted(await subject.servers()) == sorted([first.id, second.id])
        assert first.provider_id != second.provider_id
        assert not {a.address for a in first.addresses} & {a.address for a in second.addresses} - {""}
        await subject.act(one).remove(one)
        assert list(await subject.servers()) == [second.id]

    async def test_concurrently_created_machines_share_nothing(self, subject: Subject) -> None:
        found = await asyncio.gather(*(made(subject) for _ in range(subject.capacity)))
        assert sorted(await subject.servers()) == sorted(server.id for _, server in found)
        assert len({server.id for _, server in found}) == subject.capacity

    async def test_server_of_another_machine_with_same_name_is_not_touched(self, subject: Subject) -> None:
        order, server = await made(subject)
        other = msgspec.structs.replace(order, uid="11111111-other", machine="other", namespace="elsewhere")
        assert await subject.act(other).find(other) is None
        try:
            second: Server | None = await subject.act(other).create(other, subject.user_data)
        except DriverError:
            second = None  # if names are unique there cannot be two
        assert second is None or second.id != server.id
        await subject.act(other).remove(other)
        assert list(await subject.servers()) == [server.id]

    async def test_remove_of_missing_server_succeeds(self, subject: Subject) -> None:
        nothing = subject.order()
        await subject.act(nothing).remove(nothing)
        order, _ = await made(subject)
        await subject.act(order).remove(order)
        await subject.act(order).remove(order)
        await subject.act(order, lost=True).remove(order)
        assert list(await subject.things()) == []

    async def test_removed_machine_can_be_created_again(self, subject: Subject) -> None:
        order, _ = await made(subject)
        await subject.act(order).remove(order)
        server = await subject.act(order, lost=True).create(order, subject.user_data)
        assert list(await subject.servers()) == [server.id]

    async def test_server_is_found_from_create_to_remove(self, subject: Subject) -> None:
        order = subject.order()
        assert await subject.act(order).find(order) is None
        server = await subject.act(order).create(order, subject.user_data)
        found = await subject.act(order).find(order)
        assert found is not None
        assert (found.id, found.name, found.provider_id) == (server.id, server.name, server.provider_id)
        await subject.act(order).remove(order)
        assert await subject.act(order).find(order) is None

    async def test_server_runs_with_address_and_provider_id(self, subject: Subject) -> None:
        order, _ = await made(subject)
        server = await running(subject, order)
        assert any(address.type in ("InternalIP", "InternalDNS") and address.address for address in server.addresses)
        assert "://" in server.provider_id, "a providerID is a URL"

    async def test_user_data_arrives_byte_for_byte(self, subject: Subject) -> None:
        order = subject.order()
        acting = subject.act(order)
        if not acting.takes_user_data:
            return
        await acting.create(order, subject.user_data)
        server = await running(subject, order)
        assert await subject.received(server) == subject.user_data

    async def test_ssh_connects_with_recorded_key_and_host_keys(self, subject: Subject) -> None:
        order, server = await made(subject)
        if server.ssh is None:
            assert subject.act(order).takes_user_data, "without SSH and user data nobody can bootstrap it"
            return
        server = await running(subject, order)
        assert server.ssh is not None
        assert server.ssh.host_keys, "the host's keys are to be pinned"
        trusted = [asyncssh.import_public_key(key) for key in server.ssh.host_keys]
        connection = await asyncssh.connect(
            server.addresses[0].address,
            server.ssh.port,
            username=server.ssh.user,
            client_keys=[asyncssh.import_private_key(server.ssh.private_key)],
            known_hosts=(trusted, [], []),
            agent_path=None,
            config=[],
        )
        async with connection:
            done = await connection.run("echo $((40 + 2))", check=True)
        assert str(done.stdout).strip() == "42"

    async def test_list_has_exactly_the_servers_of_one_management_plane(self, subject: Subject) -> None:
        order, ours = await made(subject)
        other, theirs = await made(subject, owner="somebody-else")
        acting = subject.act(order)
        assert [(server.id, server.name) for server in await acting.owned(order.owner)] == [(ours.id, order.name)]
        assert [server.id for server in await acting.owned(other.owner)] == [theirs.id]
        assert list(await acting.owned("nobody")) == []
        (found,) = await acting.owned(order.owner)
        assert found.tags[TAG_OWNER] == order.owner
        assert dict(found.tags) == order.tags
        await acting.remove(order)
        assert list(await acting.owned(order.owner)) == []

    async def test_invalid_options_are_reported_before_anything_is_created(self, subject: Subject) -> None:
        for option, options in subject.bad_options.items():
            said = await _complaint(subject, subject.order(options=options))
            assert option in said, f"the complaint of a bad {option} is: {said or 'none'}"
        assert list(await subject.things()) == []

    async def test_valid_options_cause_no_complaint(self, subject: Subject) -> None:
        order = subject.order()
        await subject.act(order).check(order)
        assert list(await subject.things()) == []

    async def test_refusal_by_infrastructure_raises_readable_error_and_leaves_nothing(self, subject: Subject) -> None:
        order, refusing = subject.order(), subject.refusing()
        if refusing is None:
            return
        async with refusing:
            try:
                await subject.act(order).create(order, subject.user_data)
            except DriverError as error:
                said = str(error)
                assert " " in said.strip(), f"not a sentence: {said!r}"
                assert "Traceback" not in said
            else:
                raise AssertionError("the infrastructure refused, and the driver did not notice")
        server = await subject.act(order).create(order, subject.user_data)
        assert list(await subject.servers()) == [server.id]
        await subject.act(order).remove(order)
        assert list(await subject.things()) == []
