"""Model hosts: both clouds keep the same promises; the one in a directory keeps them through kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube import clock
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator.cloud import (
    Cloud,
    CloudError,
    HostRequest,
    JournalEntry,
    MemoryCloud,
    made_twice,
    provider_id,
)
from remuda.lab.simulator.file_cloud import JOURNAL, FileCloud, read_journal


@pytest.fixture(params=["memory", "file"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    if request.param == "memory":
        yield MemoryCloud()
        return
    made = FileCloud(tmp_path)
    yield made
    made.close()


def wanted(name: str = "m-1", tag: str = "ns/c1", **more: Any) -> HostRequest:
    return HostRequest(name=name, tag=tag, **more)


async def test_host_creation_is_idempotent(cloud: Cloud) -> None:
    made = [await cloud.create(wanted()) for _ in range(3)]
    assert made[0] == made[1] == made[2]
    assert await cloud.hosts() == [made[0]]
    assert await cloud.find("m-1", "ns/c1") == made[0]


async def test_hosts_of_same_name_are_distinguished_by_tag(cloud: Cloud) -> None:
    one, other = await cloud.create(wanted()), await cloud.create(wanted(tag="ns/c2"))
    assert one.provider_id != other.provider_id
    assert one.address != other.address


async def test_host_removal_is_idempotent(cloud: Cloud) -> None:
    await cloud.create(wanted())
    await cloud.remove("m-1", "ns/c1")
    await cloud.remove("m-1", "ns/c1")
    await cloud.remove("never-there", "ns/c1")
    assert await cloud.hosts() == []
    assert await cloud.find("m-1", "ns/c1") is None


async def test_host_address_is_never_reused(cloud: Cloud) -> None:
    first = await cloud.create(wanted())
    await cloud.remove("m-1", "ns/c1")
    assert (await cloud.create(wanted())).address != first.address


async def test_host_is_created_in_requested_failure_domain(cloud: Cloud) -> None:
    host = await cloud.create(wanted(failure_domain="zone-b"))
    assert host.failure_domain == "zone-b"
    assert host.address == "10.0.0.1"
    assert host.provider_id == provider_id("m-1", "ns/c1") == "simulator:///ns/c1/m-1"


async def test_scripted_refusals_fail_first_and_create_no_host(cloud: Cloud) -> None:
    request = wanted(refusals=2)
    for _ in range(2):
        with pytest.raises(CloudError, match="capacity"):
            await cloud.create(request)
        assert await cloud.hosts() == []
    await cloud.create(request)
    assert len(await cloud.hosts()) == 1


async def test_lost_create_response_still_creates_the_host(cloud: Cloud) -> None:
    request = wanted(answers_lost=2)
    for _ in range(2):
        with pytest.raises(CloudError, match="connection"):
            await cloud.create(request)
        assert len(await cloud.hosts()) == 1
    assert (await cloud.create(request)).number == 1


def test_host_becomes_running_after_boot_time() -> None:
    async def main() -> list[str]:
        cloud = MemoryCloud()
        host = await cloud.create(wanted(boot_seconds=60))
        states = [host.state]
        await asyncio.sleep(host.ready_at - clock.time())
        return [*states, host.state]

    assert virtual.run(main()) == ["booting", "running"]


_calls = st.lists(
    st.tuples(st.sampled_from(["create", "remove", "restart"]), st.sampled_from(["a", "b"]), st.integers(0, 2)),
    max_size=25,
)


@given(_calls)
def test_memory_and_file_clouds_behave_equally_across_restarts(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str, int]]
) -> None:
    async def main() -> None:
        directory = tmp_path_factory.mktemp("cloud")
        memory, file = MemoryCloud(), FileCloud(directory)
        for verb, name, trouble in calls:
            if verb == "restart":
                file.close()
                file = FileCloud(directory)
                continue
            answers = []
            for cloud in (memory, file):
                try:
                    if verb == "create":
                        answers.append(await cloud.create(wanted(name, refusals=trouble, answers_lost=trouble)))
                    else:
                        answers.append(await cloud.remove(name, "ns/c1"))
                except CloudError as error:
                    answers.append(str(error))
            assert answers[0] == answers[1]
            assert await memory.hosts() == await file.hosts()
        file.close()
        assert read_journal(directory) == memory.journal

    virtual.run(main())


async def test_file_clouds_share_one_directory(tmp_path: Path) -> None:
    one, other = FileCloud(tmp_path), FileCloud(tmp_path)
    made = await one.create(wanted())
    assert await other.create(wanted()) == made
    await other.remove("m-1", "ns/c1")
    assert await one.hosts() == []
    one.close()
    other.close()


async def test_torn_last_journal_line_is_ignored(tmp_path: Path) -> None:
    cloud = FileCloud(tmp_path)
    await cloud.create(wanted())
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(b'{"event":"create","name":"torn"')
    fresh = FileCloud(tmp_path)
    assert [host.name for host in await fresh.hosts()] == ["m-1"]
    await fresh.create(wanted("m-2"))
    assert [entry.name for entry in read_journal(tmp_path)] == ["m-1", "m-2"]
    cloud.close()
    fresh.close()


def test_acknowledged_hosts_survive_kill(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from remuda.lab.simulator.cloud import HostRequest
        from remuda.lab.simulator.file_cloud import FileCloud

        async def main():
            cloud = FileCloud(Path(sys.argv[1]))
            number = 0
            while True:
                number += 1
                host = await cloud.create(HostRequest(name=f"m-{number}", tag="t"))
                print(host.name, flush=True)

        asyncio.run(main())
    """)
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    answered = [child.stdout.readline().strip() for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    answered += child.stdout.read().split()
    child.wait()
    cloud = FileCloud(tmp_path)
    there = [host.name for host in asyncio.run(cloud.hosts())]
    cloud.close()
    assert there[: len(answered)] == answered
    assert len(there) <= len(answered) + 1


def _entry(event: Any, name: str = "m-1") -> JournalEntry:
    return JournalEntry(event=event, name=name, tag="t", at=0)


@pytest.mark.parametrize(
    ("events", "twice"),
    [
        (["create", "remove"], []),
        (["refuse", "create"], []),
        (["create", "remove", "create"], ["m-1"]),
        (["create", "create"], ["m-1"]),
    ],
)
def test_journal_check_detects_hosts_created_twice(events: list[str], twice: list[str]) -> None:
    assert made_twice([_entry(event) for event in events]) == twice


def test_journal_check_ignores_hosts_of_different_names() -> None:
    assert made_twice([_entry("create"), _entry("create", "m-2")]) == []
