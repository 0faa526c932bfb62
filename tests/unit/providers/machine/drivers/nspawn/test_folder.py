"""The folder of a host: what it says of the machine, whoever else has its process id by now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.providers.shared.drivers.nspawn.folder import Folder, HostRecord
from remuda.providers.shared.drivers.spi import DriverError


def about(name: str = "one") -> HostRecord:
    return HostRecord(name=name, hostname=name, tags={}, bridge="b", ssh_user="root")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "one")
    folder.write(about())
    return folder


def _start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def test_folder_files_round_trip_with_private_modes(folder: Folder) -> None:
    folder.keep_key("secret")
    assert (folder.read(), folder.key()) == (about(), "secret")
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.path.iterdir()}
    assert modes == {"host.json": 0o600, "key": 0o600}
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_folder_without_an_owner_is_deleted(folder: Folder) -> None:
    (folder.path / "host.json").rename(folder.path / ".host.json.part")  # as a kill leaves it
    folder.delete_unowned()
    assert not folder.path.exists()
    folder.delete_unowned()


def test_owned_folder_is_not_deleted(folder: Folder) -> None:
    folder.keep_key("secret")
    folder.delete_unowned()
    assert folder.read() == about()


def test_damaged_host_file_is_reported(folder: Folder) -> None:
    (folder.path / "host.json").write_text("{")
    with pytest.raises(DriverError, match=r"host.json is damaged"):
        folder.read()


def test_leader_is_valid_only_with_matching_start_time(folder: Folder) -> None:
    assert (folder.leader, folder.started) == (0, False)
    (folder.path / "leader").write_text(f"{os.getpid()} {_start_of(os.getpid())}\n")
    assert (folder.leader, folder.started) == (os.getpid(), True)
    (folder.path / "leader").write_text(f"{os.getpid()} 1\n")  # the id of one that ended, and ours by now
    assert (folder.leader, folder.started) == (0, True)
    (folder.path / "leader").write_text("torn")
    assert folder.leader == 0


def test_machine_names_are_unique_and_fit_interface_names(tmp_path: Path) -> None:
    names = {Folder(tmp_path / f"a-rather-long-name-of-a-host-{number}").machine for number in range(100)}
    assert len(names) == 100
    assert {len(f"vb-{name}") for name in names} == {15}


def test_console_tail_is_plain_text(folder: Folder) -> None:
    assert folder.last_output() == "its console is empty"
    lines = [f"line {number}" for number in range(20)]
    (folder.path / "console.log").write_text("\n".join([*lines, "[\x1b[0;32m  OK  \x1b[0m] Reached\r\r", "", " "]))
    assert folder.last_output().endswith("line 18 | line 19 | [  OK  ] Reached")
    assert "line 8 " not in folder.last_output()


def test_host_file_is_deleted_last(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.keep_key("secret")
    gone: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path: (gone.append(path.name), unlink(path)))
    folder.blank()
    folder.delete()
    assert gone[-1] == "host.json"
    assert not folder.path.exists()
    folder.delete()
