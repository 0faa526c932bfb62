"""What a program is given: only what the Job says, and never outside its own directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.jobs.pod_inputs import NotReady, NotRunnable, PodFile, _items, _mounted, inside
from remuda.jobs.types import Item, Mount


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/..", ""])
def test_relative_or_escaping_mount_path_is_rejected(path: str) -> None:
    with pytest.raises(NotRunnable):
        inside(path)


@given(st.text(alphabet="a./", max_size=12))
def test_accepted_mount_path_never_contains_parent_segments(path: str) -> None:
    try:
        found = inside(f"/{path}")
    except NotRunnable:
        return
    assert found.startswith("/")
    assert ".." not in found.split("/")


def test_volume_contains_only_keys_selected_by_items() -> None:
    data = {"a": b"1", "b": b"2"}
    assert _items("v", data, (), None, False) == {"a": PodFile(b"1", 0o600), "b": PodFile(b"2", 0o600)}
    chosen = [Item(key="b", path="sub/c", mode=0o777)]
    assert _items("v", data, chosen, None, False) == {"sub/c": PodFile(b"2", 0o700)}
    with pytest.raises(NotReady, match="volume v references non-existent key: z"):
        _items("v", data, [Item(key="z", path="z")], None, False)
    assert _items("v", data, [Item(key="z", path="z")], None, True) == {}
    with pytest.raises(NotRunnable):
        _items("v", data, [Item(key="a", path="../../etc/passwd")], None, False)


def test_volume_mount_places_all_files_or_one_sub_path() -> None:
    files = {"a": PodFile(b"1", 0o600), "sub/b": PodFile(b"2", 0o600)}
    assert set(_mounted(Mount(mount_path="/m"), files)) == {"/m/a", "/m/sub/b"}
    assert set(_mounted(Mount(mount_path="/etc/one", sub_path="a"), files)) == {"/etc/one"}
    assert set(_mounted(Mount(mount_path="/m", sub_path="sub"), files)) == {"/m/b"}
