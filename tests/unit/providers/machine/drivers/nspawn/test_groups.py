"""Control groups, on folders that stand for the kernel's: which hierarchies there are, and what is written where."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from remuda.providers.shared.drivers.nspawn.groups import (
    Hierarchies,
    ResourceLimits,
    hierarchies,
    make,
    processes,
    remove,
)

_HYBRID_MOUNTS = """\
20 1 254:0 / / rw - ext4 /dev/vda rw
30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup rw
"""
_HYBRID_OWN = "4:memory:/jobs/one\n2:cpu,cpuacct:/\n1:name=systemd:/supervisor\n0::/supervisor\n"
_UNIFIED_MOUNTS = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_hybrid_hierarchies_respect_own_memory_limit() -> None:
    found = hierarchies(_HYBRID_MOUNTS, _HYBRID_OWN)
    assert found.tracking == [Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified")]
    processors = Path("/sys/fs/cgroup/cpu,cpuacct")
    assert found.single == {"memory": Path("/sys/fs/cgroup/memory/jobs/one"), "cpu": processors, "cpuacct": processors}


def test_cgroup_v2_has_single_hierarchy() -> None:
    found = hierarchies(_UNIFIED_MOUNTS, "0::/user.slice/session-1.scope\n")
    assert found == Hierarchies([Path("/sys/fs/cgroup")], {})


@pytest.fixture
def unified(tmp_path: Path) -> Hierarchies:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    return Hierarchies([tmp_path], {})


def test_cgroup_v2_limits_apply_to_host_group(unified: Hierarchies, tmp_path: Path) -> None:
    made = make("rm-one", ResourceLimits(memory=512, cpus=2), unified)
    assert (tmp_path / "rm-one/memory.max").read_text() == str(512 * 1024 * 1024)
    assert (tmp_path / "rm-one/cpu.max").read_text() == "200000 100000"
    assert made.complaints == []
    assert made.keeper == [tmp_path / "rm-one/keeper"]
    assert made.machine == [tmp_path / "rm-one/machine"]


def test_cgroup_v1_limits_apply_per_controller(tmp_path: Path) -> None:
    for name in ("systemd", "memory", "cpu"):
        (tmp_path / name).mkdir()
    single = {name: tmp_path / name for name in ("memory", "cpu")}
    made = make("rm-one", ResourceLimits(256, 1), Hierarchies([tmp_path / "systemd"], single))
    assert (tmp_path / "memory/rm-one/memory.limit_in_bytes").read_text() == str(256 * 1024 * 1024)
    assert (tmp_path / "cpu/rm-one/cpu.cfs_quota_us").read_text() == "100000"
    assert made.keeper == [tmp_path / "systemd/rm-one/keeper", tmp_path / "memory/rm-one", tmp_path / "cpu/rm-one"]


def test_cgroup_v1_creates_and_removes_group_in_every_hierarchy(tmp_path: Path) -> None:
    for name in ("systemd", "cpuset", "cpu,cpuacct"):
        (tmp_path / name).mkdir()
    for file, text in (("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")):
        (tmp_path / "cpuset" / file).write_text(text)
    shared = tmp_path / "cpu,cpuacct"
    single = {"cpu": shared, "cpuacct": shared, "cpuset": tmp_path / "cpuset", "pids": tmp_path / "missing"}
    found = Hierarchies([tmp_path / "systemd"], single)
    made = make("rm-one", ResourceLimits(), found)
    assert made.keeper == [tmp_path / "systemd/rm-one/keeper", shared / "rm-one", tmp_path / "cpuset/rm-one"]
    assert made.complaints == []
    assert (tmp_path / "cpuset/rm-one/cpuset.cpus").read_text() == "0-1\n"
    assert (tmp_path / "cpuset/rm-one/cpuset.mems").read_text() == "0\n"

    for file in ("cpuset.cpus", "cpuset.mems"):  # of the kernel: there as long as their group is
        (tmp_path / "cpuset/rm-one" / file).unlink()
    (shared / "rm-one/kubepods").mkdir()
    remove("rm-one", found)
    assert list(tmp_path.rglob("rm-one")) == []


def test_unavailable_limit_is_reported_and_host_created(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("pids\n")
    made = make("rm-one", ResourceLimits(memory=512), Hierarchies([tmp_path], {}))
    assert [complaint.split(":")[0] for complaint in made.complaints] == ["cannot limit memory on this machine"]
    assert made.keeper


def test_host_without_limits_has_no_limit_files(unified: Hierarchies, tmp_path: Path) -> None:
    make("rm-one", ResourceLimits(), unified)
    assert not list((tmp_path / "rm-one").glob("*.max"))


def test_all_processes_of_a_host_are_found_and_no_others(unified: Hierarchies, tmp_path: Path) -> None:
    made = make("rm-one", ResourceLimits(), unified)
    (tmp_path / "cgroup.procs").write_text("1\n")
    (made.keeper[0] / "cgroup.procs").write_text("10\n")
    (made.machine[0] / "payload").mkdir()
    (made.machine[0] / "payload/cgroup.procs").write_text("11\n12\n0\n")  # 0: of a namespace we cannot see into
    assert processes("rm-one", unified) == {10, 11, 12}
    assert processes("rm-two", unified) == set()


def test_remove_deletes_nested_groups(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "rm-one/machine/payload/system.slice")
    remove("rm-one", Hierarchies([tmp_path], {}))
    remove("rm-one", Hierarchies([tmp_path], {}))
    assert list(tmp_path.iterdir()) == []


def test_processes_tolerates_concurrent_group_changes(tmp_path: Path) -> None:
    kept = tmp_path / "host" / "machine" / "init.scope"
    kept.mkdir(parents=True)
    (kept / "cgroup.procs").write_text("17\n")
    busy = threading.Event()

    def come_and_go() -> None:
        while not busy.is_set():
            for number in range(50):
                (kept.parent / f"{number}.service" / "below").mkdir(parents=True)
            for number in range(50):
                (kept.parent / f"{number}.service" / "below").rmdir()
                (kept.parent / f"{number}.service").rmdir()

    host = threading.Thread(target=come_and_go)
    host.start()
    try:
        for _ in range(200):
            assert processes("host", Hierarchies([tmp_path], {})) == {17}
    finally:
        busy.set()
        host.join()
