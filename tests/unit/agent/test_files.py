"""Files of a plan."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.agent.files import FileError, bring, place
from remuda.agent.plan import File


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def mine(path: str, content: bytes = b"", **more: object) -> File:
    return File(path, content, uid=os.getuid(), gid=os.getgid(), **more)  # type: ignore[arg-type]


def test_file_modes_are_as_specified_or_private_by_default(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        bring(mine("/a/b/private", b"1"), str(tmp_path))
        bring(mine("/a/b/public", b"1", permissions="0644"), str(tmp_path))
        bring(mine("/a/c", directory=True), str(tmp_path))
    finally:
        os.umask(old)
    assert (mode(tmp_path / "a/b/private"), mode(tmp_path / "a/b/public")) == (0o600, 0o644)
    assert (mode(tmp_path / "a/b"), mode(tmp_path / "a/c")) == (0o755, 0o755)


def test_unchanged_file_is_not_rewritten_but_its_mode_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "file"
    bring(mine("/file", b"same", permissions="0644"), str(tmp_path))
    os.utime(path, (1, 1))
    path.chmod(0o777)
    before = path.stat().st_ino
    bring(mine("/file", b"same", permissions="0600"), str(tmp_path))
    assert (path.stat().st_ino, path.stat().st_mtime, mode(path)) == (before, 1, 0o600)
    bring(mine("/file", b"else", permissions="0600"), str(tmp_path))
    assert path.read_bytes() == b"else"
    assert path.stat().st_ino != before  # replaced as a whole
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_writing_through_symlink_updates_target_and_keeps_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    bring(mine("/link", b"new"), str(tmp_path))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_delete_action_removes_files_trees_and_links_without_following(tmp_path: Path) -> None:
    (tmp_path / "folder/below").mkdir(parents=True)
    (tmp_path / "folder/below/file").touch()
    (tmp_path / "kept").touch()
    (tmp_path / "folder/out").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for path in ("/folder", "/link", "/nothing", "/no/where"):
        bring(File(path, action="delete"), str(tmp_path))
    assert os.listdir(tmp_path) == ["kept"]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (File(""), "the path is empty"),
        (File("etc/x"), "is not absolute"),
        (File("/etc/../x"), r"contains \.\."),
        (File("/.."), r"contains \.\."),
        (File("/a\0b"), "zero byte"),
        (File("/x", permissions="rw-r--r--"), "not octal digits"),
        (File("/x", permissions="99"), "not octal digits"),
        (File("/x", permissions="77777"), "not octal digits"),
        (File("/x", permissions="-1"), "not octal digits"),
        (File("/", action="delete"), "the root of the host is not removed"),
        (File("/out/x", b"1"), "leads out of this host"),
        (File("/out/x", action="delete"), "leads out of this host"),
        (File("/folder", b"1"), "a directory of that name"),
        (File("/file/below", b"1"), "File exists|Not a directory"),
    ],
)
def test_rejected_file_error_names_path_and_reason(tmp_path: Path, file: File, words: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    for folder in (outside, root, root / "folder"):
        folder.mkdir()
    (outside / "x").write_text("kept")
    (root / "file").touch()
    (root / "out").symlink_to(outside)
    with pytest.raises(FileError, match=words) as caught:
        bring(file, str(root))
    assert repr(file.path) in str(caught.value)
    assert (outside / "x").read_text() == "kept"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["..", ".", "", "a", "b", "/"]), max_size=8).map("/".join))
def test_path_cannot_leave_the_root(tmp_path: Path, path: str) -> None:
    try:
        found = place(path, str(tmp_path))
    except ValueError:
        return
    assert found == str(tmp_path) or found.startswith(f"{tmp_path}/")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_owner_and_group_are_set(tmp_path: Path) -> None:
    bring(File("/file", b"1", uid=12, gid=34), str(tmp_path))
    found = (tmp_path / "file").stat()
    assert (found.st_uid, found.st_gid) == (12, 34)
