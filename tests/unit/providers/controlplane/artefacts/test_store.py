"""What is kept for nodes: whole or not there, and never silently another."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from remuda.providers.controlplane.artefacts import SUMS, Artefacts, BadArtefact

VERSION = "v1.36.4+k3s1"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Artefacts:
    return Artefacts(tmp_path / "store")


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "given"
    path.write_bytes(b"a program")
    return path


def test_added_artefacts_are_found_by_other_store_instance(store: Artefacts, binary: Path, tmp_path: Path) -> None:
    other = Artefacts(tmp_path / "store")
    assert other.lookup("k3s", VERSION) == {}
    store.add("k3s", VERSION, "amd64", {"k3s": binary})
    store.add("k3s", VERSION, "arm64", {"k3s": binary, "images.tar.zst": binary})
    found = sha256(b"a program")
    assert other.lookup("k3s", VERSION) == {"amd64": {"k3s": found}, "arm64": {"images.tar.zst": found, "k3s": found}}
    assert next(str(one) for one in other.every()) == f"k3s {VERSION} amd64 k3s"
    folder = tmp_path / "store" / "k3s" / VERSION / "arm64"
    assert subprocess.run(["sha256sum", "-c", SUMS], cwd=folder, capture_output=True).returncode == 0


def test_replacing_artefact_requires_replace(store: Artefacts, binary: Path) -> None:
    store.add("k3s", VERSION, "amd64", {"k3s": binary})
    store.add("k3s", VERSION, "amd64", {"k3s": binary})  # the same are welcome
    binary.write_bytes(b"another")
    with pytest.raises(BadArtefact, match="already"):
        store.add("k3s", VERSION, "amd64", {"k3s": binary, "images.tar.zst": binary})
    assert store.lookup("k3s", VERSION)["amd64"] == {"k3s": sha256(b"a program")}  # none of them
    store.add("k3s", VERSION, "amd64", {"k3s": binary}, replace=True)
    assert store.lookup("k3s", VERSION)["amd64"] == {"k3s": sha256(b"another")}


def test_checksum_mismatch_is_rejected_and_leaves_nothing(store: Artefacts, binary: Path, tmp_path: Path) -> None:
    with pytest.raises(BadArtefact, match="wrong checksum"):
        store.add("k3s", VERSION, "amd64", {"k3s": binary}, sums={"k3s": "0" * 64})
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.name != ".lock"] == []
    store.add("k3s", VERSION, "amd64", {"k3s": binary}, sums={"k3s": sha256(b"a program").upper()})


def test_partial_files_are_ignored_and_removed_by_next_add(store: Artefacts, binary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "store" / "k3s" / VERSION / "amd64"
    folder.mkdir(parents=True)
    (folder / "k3s").write_bytes(b"half")
    (folder / ".new-1234").write_bytes(b"half")
    assert store.lookup("k3s", VERSION) == {}
    assert store.open("k3s", VERSION, "amd64", "k3s") is None
    store.add("k3s", VERSION, "amd64", {"k3s": binary})
    assert sorted(path.name for path in folder.iterdir()) == [SUMS, "k3s"]
    assert (folder / "k3s").read_bytes() == b"a program"


def test_verify_detects_changed_file(store: Artefacts, binary: Path, tmp_path: Path) -> None:
    (artefact,) = store.add("k3s", VERSION, "amd64", {"k3s": binary})
    assert store.verify(artefact) == ""
    (tmp_path / "store" / "k3s" / VERSION / "amd64" / "k3s").write_bytes(b"worm")
    assert "checksum" in store.verify(artefact)


@pytest.mark.parametrize("word", ["..", "", "a/b", ".hidden", "x" * 200, SUMS, "a\nb"])
def test_invalid_names_are_rejected(store: Artefacts, binary: Path, word: str) -> None:
    store.add("k3s", VERSION, "amd64", {"k3s": binary})
    with pytest.raises(BadArtefact):
        store.add("k3s", VERSION, "amd64", {word: binary})
    for place in range(4):
        words = ["k3s", VERSION, "amd64", "k3s"]
        words[place] = word
        assert store.open(*words) is None


def test_symlinks_are_not_served(store: Artefacts, binary: Path, tmp_path: Path) -> None:
    store.add("k3s", VERSION, "amd64", {"k3s": binary})
    path = tmp_path / "store" / "k3s" / VERSION / "amd64" / "k3s"
    path.unlink()
    os.symlink(binary, path)
    assert store.open("k3s", VERSION, "amd64", "k3s") is None
