from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from remuda.agent.images import ImageError, stage
from remuda.agent.images.platforms import this_host
from tests.lab.images import Image, Settings, digest, docker_save, entry, index, oci_layout, tar

NAME = "example.com/installer:v1"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "images").mkdir()
    (tmp_path / "registries.yaml").write_text("mirrors: {example.com: {endpoint: ['http://127.0.0.1:1']}}")
    return Settings(tmp_path)


@pytest.fixture
def image() -> Image:
    return Image(
        [
            tar(entry("run.sh", b"old", 0o755), entry("gone", b"")),
            tar(entry("run.sh", b"new", 0o755), entry(".wh.gone")),
        ]
    )


def staged(reference: str, settings: Settings) -> dict[str, str]:
    target = settings.folder / "work" / "0"
    stage(reference, str(target), settings)
    assert [path.name for path in target.parent.iterdir()] == ["0"], "nothing is left beside it"
    return {path.name: path.read_text() for path in target.iterdir()}


def test_docker_save_archive_image_is_found_by_tag(settings: Settings, image: Image) -> None:
    other = Image([tar(entry("run.sh", b"other"))])
    images = settings.folder / "images"
    (images / "a.tar").write_bytes(docker_save(other, "example.com/installer:v2", "busybox:latest"))
    (images / "deep").mkdir()
    (images / "deep" / "b.tar").write_bytes(docker_save(image, "example.com/other:v1", NAME))
    assert staged(NAME, settings) == {"run.sh": "new"}
    assert staged("busybox", settings) == {"run.sh": "other"}


def test_staging_replaces_leftovers_of_an_earlier_attempt(settings: Settings, image: Image) -> None:
    (settings.folder / "images" / "a.tar").write_bytes(docker_save(image, NAME))
    (settings.folder / "work" / "0").mkdir(parents=True)
    (settings.folder / "work" / "0" / "rest").write_text("of an earlier attempt")
    (settings.folder / "work" / "0.part-abc" / "root").mkdir(parents=True)
    assert staged(NAME, settings) == {"run.sh": "new"}


@pytest.mark.parametrize("suffix", ["tar.gz", "tgz", "tar.bz2", "tar.xz", "tar.zst", "tar.lz4", "TAR.GZ"])
def test_compressed_image_archives_are_staged(settings: Settings, image: Image, suffix: str) -> None:
    tool = {"gz": "gzip", "tgz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd", "lz4": "lz4"}[
        suffix.lower().rpartition(".")[2]
    ]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    said = subprocess.run([tool, "-c"], input=docker_save(image, NAME), capture_output=True, check=True)
    (settings.folder / "images" / f"a.{suffix}").write_bytes(said.stdout)
    assert staged(NAME, settings) == {"run.sh": "new"}


def test_oci_layout_image_is_found_by_name_and_digest(settings: Settings, image: Image) -> None:
    other = Image([tar(entry("run.sh", b"other"))])
    (settings.folder / "images" / "a.tar").write_bytes(oci_layout({"example.com/other:v1": other, NAME: image}))
    assert staged(NAME, settings) == {"run.sh": "new"}
    assert staged(f"example.com/other@{other.digest}", settings) == {"run.sh": "other"}


def test_oci_layout_may_contain_an_image_index(settings: Settings, image: Image) -> None:
    host = str(this_host())
    listed = index({"linux/mips": Image([tar(entry("run.sh", b"mips"))]), host: image})
    pointer = {
        "digest": digest(listed),
        "size": len(listed),
        "annotations": {"org.opencontainers.image.ref.name": NAME},
    }
    blobs = {digest(listed): listed, image.digest: image.manifest, **image.blobs}
    (settings.folder / "images" / "a.tar").write_bytes(
        tar(
            *(entry(f"./blobs/{name.replace(':', '/')}", content) for name, content in blobs.items()),
            entry("./index.json", json.dumps({"manifests": [pointer]}).encode()),
        )
    )
    assert staged(NAME, settings) == {"run.sh": "new"}


def test_modified_oci_blob_is_rejected(settings: Settings, image: Image) -> None:
    key = next(name for name, content in image.blobs.items() if content[:2] == b"\x1f\x8b")
    image.blobs[key] = gzip.compress(tar(entry("run.sh", b"evil", 0o755)))
    (settings.folder / "images" / "a.tar").write_bytes(oci_layout({NAME: image}))
    with pytest.raises(ImageError, match=r"a\.tar: its blob sha256:\w+ is not what its digest says"):
        stage(NAME, str(settings.folder / "work" / "0"), settings)
    assert not os.path.lexists(settings.folder / "work" / "0")


def test_modified_docker_save_layer_is_rejected(settings: Settings, image: Image) -> None:
    image.layers = [tar(entry("run.sh", b"evil")), image.layers[1]]
    (settings.folder / "images" / "a.tar").write_bytes(docker_save(image, NAME))
    with pytest.raises(ImageError, match="a layer is not what its digest"):
        stage(NAME, str(settings.folder / "work" / "0"), settings)
    assert list((settings.folder / "work").iterdir()) == []


def test_unreadable_archives_are_listed_when_image_is_not_found(settings: Settings, image: Image) -> None:
    images = settings.folder / "images"
    (images / "broken.tar").write_bytes(b"nonsense" * 200)
    (images / "list.tar").write_bytes(tar(entry("manifest.json", b"{")))
    (images / ".hidden.tar").write_bytes(docker_save(image, NAME))
    (images / "readme.txt").write_text("x")
    (settings.folder / "registries.yaml").write_text("mirrors: {example.com: {endpoint: 5}}")
    with pytest.raises(ImageError, match=r"mirrors\[example\.com\]\.endpoint is not a list"):
        stage(NAME, str(settings.folder / "work" / "0"), settings)
    from remuda.agent.images import archives
    from remuda.agent.images.references import parse

    found, notes = archives.find(parse(NAME), str(images))
    assert found is None
    assert [note.split(":")[0].rsplit("/", 1)[1] for note in notes] == [
        "broken.tar could not be read",
        "list.tar could not be read",
    ]


def test_missing_archive_directory_contains_no_images(tmp_path: Path) -> None:
    from remuda.agent.images import archives
    from remuda.agent.images.references import parse

    assert archives.find(parse(NAME), str(tmp_path / "nowhere")) == (None, [])
