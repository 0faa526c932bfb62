from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

from tests.interop.system_agent.conftest import Host


def file(path: Path | str, content: bytes = b"", **more: Any) -> dict[str, Any]:
    return {"path": str(path), "content": base64.b64encode(content).decode(), **more}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_directories_are_created_with_mode_and_owner(host: Host) -> None:
    top = host.folder / "etc"
    odd = bytes(range(256))
    host.applied(
        {
            "files": [
                file(top / "a/b/plain", odd),
                file(top / "open", b"x", permissions="0644"),
                file(top / "owned", b"x", uid=12, gid=34),
                file(top / "empty"),
                {"path": str(top / "dir"), "directory": True},
                {"path": str(top / "a/closed"), "directory": True, "permissions": "0700", "uid": 12, "gid": 34},
            ]
        }
    )
    assert (top / "a/b/plain").read_bytes() == odd
    assert [mode(top / name) for name in ("a", "a/b", "a/b/plain", "open", "empty", "dir", "a/closed")] == [
        0o755, 0o755, 0o600, 0o644, 0o600, 0o755, 0o700,
    ]  # fmt: skip
    for name, owners in (("owned", (12, 34)), ("a/closed", (12, 34)), ("open", (0, 0))):
        assert ((top / name).stat().st_uid, (top / name).stat().st_gid) == owners


def test_unchanged_file_is_not_rewritten_but_mode_is_corrected(host: Host) -> None:
    path = host.folder / "file"
    path.write_bytes(b"same")
    path.chmod(0o777)
    os.utime(path, (1000, 1000))
    host.applied({"files": [file(path, b"same", permissions="0640")]})
    assert mode(path) == 0o640
    assert path.stat().st_mtime == 1000


def test_file_is_overwritten_through_a_link(host: Host) -> None:
    target, link = host.folder / "target", host.folder / "link"
    target.write_text("old")
    link.symlink_to(target)
    host.applied({"files": [file(link, b"new")]})
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_files_are_deleted(host: Host) -> None:
    top = host.folder / "gone"
    (top / "full/deep").mkdir(parents=True)
    (top / "full/deep/file").write_text("x")
    (top / "file").write_text("x")
    host.applied(
        {
            "files": [
                {"path": str(top / "file"), "action": "delete"},
                {"path": str(top / "full"), "directory": True, "action": "delete"},
                {"path": str(top / "never-there"), "action": "delete"},
            ]
        }
    )
    assert list(top.iterdir()) == []


def test_files_are_written_in_order_before_instructions(host: Host) -> None:
    path = host.folder / "file"
    plan = {
        "files": [file(path, b"first"), file(path, b"second", permissions="0600")],
        "instructions": [host.shell(f"cat {path} >> {host.notes}")],
    }
    host.applied(plan)
    assert host.noted == ["second"]


def test_files_changed_by_hand_are_kept_until_next_plan(host: Host) -> None:
    path = host.folder / "file"
    host.applied({"files": [file(path, b"planned")]})
    path.write_text("changed by hand")
    host.settle()
    assert path.read_text() == "changed by hand"
    host.applied({"files": [file(path, b"planned")], "error": "another"})
    assert path.read_text() == "planned"


def test_unwritable_file_stops_plan(host: Host) -> None:
    (host.folder / "file").write_text("in the way")
    plan = {"files": [file(host.folder / "file" / "below", b"x")], "instructions": [host.shell(host.note("ran"))]}
    if host.expected("a file that cannot be written") == "failed":
        host.failed(plan)
    else:
        host.give(plan)
        assert "failure-count" not in host.settle()
    assert host.noted == []
    host.applied({"instructions": [host.shell(host.note("next"))]})
    assert host.noted == ["next"]


def test_path_with_parent_segments_has_listed_outcome_per_agent(host: Host) -> None:
    (host.folder / "deep").mkdir()
    plan = {"files": [file(f"{host.folder}/deep/../file", b"x")]}
    if host.expected("a path with ..") == "failed":
        host.failed(plan)
        assert not (host.folder / "file").exists()
    else:
        host.applied(plan)
        assert (host.folder / "file").exists()
