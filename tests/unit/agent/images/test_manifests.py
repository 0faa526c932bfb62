from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.agent.images import ImageError
from remuda.agent.images.manifests import layers
from remuda.agent.images.platforms import Platform, choose, this_host
from tests.lab.images import Image, digest, entry, index, tar

HOST = Platform("linux", "arm64", "v8")
IMAGES = {name: Image([tar(entry("for", name.encode()))]) for name in ("linux/amd64", "linux/arm64", "linux/arm/v7")}
BLOBS = {image.digest: image.manifest for image in IMAGES.values()}


def _image(name: str) -> list[str]:
    return [layer["digest"] for layer in json.loads(IMAGES[name].manifest)["layers"]]


def test_index_selects_image_for_host_platform() -> None:
    assert [layer.digest for layer in layers(index(IMAGES), HOST, BLOBS.__getitem__)] == _image("linux/arm64")
    old = Platform("linux", "arm", "v7")
    assert [layer.digest for layer in layers(index(IMAGES), old, BLOBS.__getitem__)] == _image("linux/arm/v7")


def test_index_without_host_platform_raises_image_error() -> None:
    with pytest.raises(ImageError, match="no image for linux/s390x, only for linux/amd64, linux/arm, linux/arm64"):
        layers(index(IMAGES), Platform("linux", "s390x", ""), BLOBS.__getitem__)
    with pytest.raises(ImageError, match="only for linux/amd64, linux/arm, linux/arm64"):
        layers(index(IMAGES), Platform("linux", "arm", "v6"), BLOBS.__getitem__)


def test_index_selects_best_matching_arm_variant() -> None:
    entries = [
        {"digest": str(n), "platform": {"os": "linux", "architecture": "arm", "variant": f"v{n}"}} for n in (5, 7, 6, 8)
    ]
    chosen = choose(entries, Platform("linux", "arm", "v7"))
    assert chosen is not None
    assert chosen["digest"] == "7"


def test_nested_index_is_followed_up_to_a_depth_limit() -> None:
    inner = index(IMAGES)
    outer = json.dumps({"manifests": [{"digest": digest(inner)}]}).encode()
    assert len(layers(outer, HOST, {digest(inner): inner, **BLOBS}.__getitem__)) == 1
    loop = json.dumps({"manifests": [{"digest": digest(b"")}]}).encode()
    deepest = [loop]
    for _ in range(5):
        deepest.append(json.dumps({"manifests": [{"digest": digest(deepest[-1])}]}).encode())
    with pytest.raises(ImageError, match="refers to an index of indexes"):
        layers(deepest[-1], HOST, {digest(content): content for content in deepest}.__getitem__)


def test_manifest_with_wrong_digest_is_rejected() -> None:
    with pytest.raises(ImageError, match="a manifest is not what its digest"):
        layers(index(IMAGES), HOST, lambda wanted: IMAGES["linux/amd64"].manifest)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "not a JSON object"),
        ({"schemaVersion": 1}, "schema 1"),
        ({}, "names no layers"),
        ({"layers": [{"digest": "sha256:../../x", "size": 1}]}, "without a digest"),
        ({"layers": [{"digest": "sha256:" + "0" * 64, "size": -1}]}, "or a size"),
        ({"layers": ["x"]}, "without a digest"),
        ({"manifests": "x"}, "only for nothing"),
        ({"manifests": [{"digest": "x"}]}, "without a digest"),
    ],
)
def test_malformed_manifest_is_rejected(document: Any, said: str) -> None:
    with pytest.raises(ImageError, match=said):
        layers(json.dumps(document).encode(), HOST, BLOBS.__getitem__)


def test_host_platform_uses_go_architecture_names() -> None:
    assert this_host().os == "linux"
    assert this_host().architecture not in ("x86_64", "aarch64")
