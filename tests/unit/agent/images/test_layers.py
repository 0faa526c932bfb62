"""What layers become on disk, and what an image can not do to it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.images import ImageError
from remuda.agent.images.layers import unpack
from remuda.agent.images.tree import ImageBudget, Tree, allowance
from tests.lab.images import digest, entry, folder, hard_link, symbolic_link, tar


def unpacked(root: Path, *layers: bytes, limits: ImageBudget | None = None) -> None:
    root.mkdir(exist_ok=True)
    tree = Tree(str(root), limits or ImageBudget())
    for layer in layers:
        unpack(io.BytesIO(layer), tree)


def content(root: Path) -> dict[str, str]:
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text()
    return found


def test_upper_layer_overrides_lower_layer(tmp_path: Path) -> None:
    lower = tar(
        folder("a"),
        entry("a/kept", b"1"),
        entry("a/replaced", b"1"),
        entry("file", b"1"),
        folder("folder"),
        entry("folder/x", b"1"),
    )
    upper = tar(
        entry("a/replaced", b"2"),
        folder("file"),
        entry("file/in", b"2"),
        entry("folder", b"2"),
        entry("./new/deep/x", b"2"),
    )
    unpacked(tmp_path / "root", lower, upper)
    assert content(tmp_path / "root") == {
        "a": "/", "a/kept": "1", "a/replaced": "2", "file": "/", "file/in": "2", "folder": "2",
        "new": "/", "new/deep": "/", "new/deep/x": "2",
    }  # fmt: skip


def test_whiteouts_remove_only_lower_layer_entries(tmp_path: Path) -> None:
    lower = tar(
        entry("gone", b"1"),
        entry("tree/a/b", b"1"),
        entry("opaque/old", b"1"),
        entry("opaque/sub/old", b"1"),
        entry("stays", b"1"),
    )
    upper = tar(
        entry(".wh.gone"), entry(".wh.tree"), entry("opaque/sub/new", b"2"), entry("opaque/.wh..wh..opq"),
        entry("opaque/late", b"2"),
        entry("same", b"2"), entry(".wh.same"), entry("nowhere/.wh.x"), entry(".wh..wh.plnk"),
    )  # fmt: skip
    unpacked(tmp_path / "root", lower, upper)
    assert content(tmp_path / "root") == {
        "opaque": "/", "opaque/late": "2", "opaque/sub": "/", "opaque/sub/new": "2", "same": "2", "stays": "1",
    }  # fmt: skip


def test_file_modes_are_masked_and_owners_ignored(tmp_path: Path) -> None:
    unpacked(
        tmp_path / "root",
        tar(
            folder("d", 0o777),
            entry("script", b"", 0o4777),
            entry("secret", b"", 0o600),
            entry("windows", b"", 0),
            folder("closed", 0o000),
        ),
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "root").iterdir()}
    assert modes == {"d": 0o755, "script": 0o755, "secret": 0o600, "windows": 0o755, "closed": 0o755}
    assert {path.stat().st_uid for path in (tmp_path / "root").iterdir()} == {os.geteuid()}


def test_hard_and_symbolic_links_are_created(tmp_path: Path) -> None:
    unpacked(
        tmp_path / "root",
        tar(
            entry("usr/bin/real", b"x", 0o755),
            hard_link("twin", "usr/bin/real"),
            symbolic_link("bin", "usr/bin"),
            symbolic_link("mtab", "/proc/mounts"),
        ),
        tar(entry("bin/more", b"y"), hard_link("twin", "usr/bin/real")),
    )
    root = tmp_path / "root"
    assert (root / "twin").stat().st_ino == (root / "usr/bin/real").stat().st_ino
    assert os.readlink(root / "mtab") == "/proc/mounts"
    assert (root / "usr/bin/more").read_text() == "y", "a link within the image is followed within it"


def test_file_replaces_symlink_without_touching_its_target(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    unpacked(tmp_path / "root", tar(symbolic_link("a", str(outside)), entry("a", b"inside")))
    assert (tmp_path / "root" / "a").read_text() == "inside"
    assert outside.read_text() == "untouched"


def test_absolute_symlink_resolves_within_the_image_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    unpacked(tmp_path / "root", tar(symbolic_link("a", str(outside)), entry("a/file", b"x")))
    assert list(outside.iterdir()) == []
    assert (tmp_path / "root" / str(outside).lstrip("/") / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry("../evil", b"x")], r"a path with \.\. is refused"),
        ([entry("a/../../evil", b"x")], r"a path with \.\. is refused"),
        ([folder("..")], r"a path with \.\. is refused"),
        ([symbolic_link("a", ".."), entry("a/evil", b"x")], "leads out of the image"),
        ([folder("d"), symbolic_link("d/a", "../.."), entry("d/a/evil", b"x")], "leads out of the image"),
        ([symbolic_link("a", "b"), symbolic_link("b", "a"), entry("a/x", b"x")], "form a loop"),
        ([hard_link("a", "../../etc/passwd")], r"a path with \.\. is refused"),
        ([hard_link("a", "/etc/passwd")], "which is not a file of the image"),
        ([symbolic_link("b", "/etc"), hard_link("a", "b/passwd")], "which is not a file of the image"),
        ([folder("d"), hard_link("a", "d")], "which is not a file of the image"),
        ([entry("d/.wh...")], "would remove more than a file"),
        ([entry(".wh..")], "would remove more than a file"),
        ([entry(".wh.")], "would remove more than a file"),
        ([entry("../.wh.evil")], r"a path with \.\. is refused"),
        ([symbolic_link("a", ""), ], "no usable target"),
        ([entry("x" * 300, b"")], "is not a path"),
    ],
)  # fmt: skip
def test_paths_escaping_the_image_root_are_rejected(
    tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]], said: str
) -> None:
    beside = tmp_path / "evil"
    beside.write_text("untouched")
    with pytest.raises(ImageError, match=said):
        unpacked(tmp_path / "root", tar(*entries))
    assert beside.read_text() == "untouched"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil", "root"]


_PART = st.sampled_from(["a", "b", "..", ".", "", ".wh.a", ".wh...", ".wh..", ".wh..wh..opq", "secret"])
_NAME = st.lists(_PART, min_size=1, max_size=4).map("/".join)
_ENTRY = st.one_of(
    st.builds(entry, _NAME, st.just(b"evil")),
    st.builds(folder, _NAME),
    st.builds(
        symbolic_link,
        _NAME,
        st.one_of(_NAME, _NAME.map(lambda name: f"/{name}"), st.just("../outside"), st.just("OUTSIDE")),
    ),
    st.builds(hard_link, _NAME, st.one_of(_NAME, st.just("../outside/secret"))),
    st.builds(lambda name: entry(name, type=tarfile.FIFOTYPE), _NAME),
)


@given(st.lists(st.lists(_ENTRY, max_size=8), max_size=3))
def test_arbitrary_layers_never_change_files_outside_the_root(
    layers: list[list[tuple[tarfile.TarInfo, bytes]]],
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        outside = top / "outside"
        outside.mkdir()
        (outside / "secret").write_text("untouched")
        for layer in layers:
            for made, _ in layer:
                made.linkname = made.linkname.replace("OUTSIDE", str(outside))
        (top / "root").mkdir()
        tree = Tree(str(top / "root"), ImageBudget())
        for layer in layers:
            try:
                unpack(io.BytesIO(tar(*layer)), tree)
            except ImageError:
                pass
        assert (outside / "secret").read_text() == "untouched"
        assert [path.name for path in outside.iterdir()] == ["secret"]
        assert (outside / "secret").stat().st_nlink == 1
        assert sorted(path.name for path in top.iterdir()) == ["outside", "root"]


def _program(name: str) -> bool:
    return shutil.which(name) is not None


@pytest.mark.parametrize(
    "compress",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        pytest.param(
            lambda data: _run("zstd", data),
            id="zstd",
            marks=pytest.mark.skipif(not _program("zstd"), reason="no zstd here"),
        ),
        pytest.param(
            lambda data: _run("lz4", data),
            id="lz4",
            marks=pytest.mark.skipif(not _program("lz4"), reason="no lz4 here"),
        ),
    ],
)
def test_compressed_layers_are_unpacked_and_truncated_layers_rejected(tmp_path: Path, compress: object) -> None:
    layer = tar(entry("a", b"x" * 3_000_000))
    unpacked(tmp_path / "root", compress(layer))  # type: ignore[operator]
    assert (tmp_path / "root/a").stat().st_size == 3_000_000
    with pytest.raises(ImageError):
        unpacked(tmp_path / "damaged", compress(layer)[:-40])  # type: ignore[operator]


def _run(program: str, data: bytes) -> bytes:
    return subprocess.run([program, "-c"], input=data, capture_output=True, check=True).stdout


def test_missing_decompressor_is_named_in_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="compressed with zstd, which is not installed"):
        unpacked(tmp_path / "root", b"\x28\xb5\x2f\xfd" + b"\0" * 100)


def test_decompression_bomb_is_rejected(tmp_path: Path) -> None:
    bomb = gzip.compress(tar(entry("zeros", bytes(50_000_000))))
    assert len(bomb) < 100_000
    with pytest.raises(ImageError, match="takes more than 10000000 bytes"):
        unpacked(tmp_path / "root", bomb, limits=ImageBudget(10_000_000))
    assert (tmp_path / "root/zeros").stat().st_size <= 10_000_000
    with pytest.raises(ImageError, match="more than 10 files"):
        unpacked(tmp_path / "root2", tar(*(entry(f"f{n}") for n in range(20))), limits=ImageBudget(entries=10))


def test_oversized_tar_name_is_rejected(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    with pytest.raises(ImageError, match="more than a megabyte"):
        unpacked(tmp_path / "root", header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))


def test_image_limits_are_read_from_environment() -> None:
    assert allowance({"REMUDA_IMAGE_LIMIT_BYTES": "5"}).limit == 5
    with pytest.raises(ImageError, match="REMUDA_IMAGE_LIMIT_ENTRIES is not a number"):
        allowance({"REMUDA_IMAGE_LIMIT_ENTRIES": "many"})


def test_invalid_or_truncated_archive_raises_image_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="could not be unpacked"):
        unpacked(tmp_path / "root", b"x" * 2000)
    with pytest.raises(ImageError, match="could not be unpacked"):
        unpacked(tmp_path / "root", tar(entry("a", b"x" * 2000))[:1500])


def test_layer_digest_is_verified_on_uncompressed_content(tmp_path: Path) -> None:
    layer = tar(entry("a", b"x"))
    tree = Tree(str(tmp_path), ImageBudget())
    unpack(io.BytesIO(gzip.compress(layer)), tree, digest(layer))
    with pytest.raises(ImageError, match="is not what its digest"):
        unpack(io.BytesIO(gzip.compress(layer)), tree, digest(b"another"))


def test_device_nodes_and_pipes_are_skipped(tmp_path: Path) -> None:
    unpacked(
        tmp_path / "root",
        tar(entry("null", type=tarfile.CHRTYPE), entry("pipe", type=tarfile.FIFOTYPE), entry("a", b"")),
    )
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["a"]
