"""Which artefact a file is, by the name it was released under."""

from __future__ import annotations

import pytest

from remuda.providers.controlplane.artefacts.file_names import Unknown, is_list_of_sums, named, sums


@pytest.mark.parametrize(
    ("distro", "file", "name", "arch"),
    [
        ("k3s", "k3s", "k3s", ""),
        ("k3s", "k3s-arm64", "k3s", "arm64"),
        ("k3s", "k3s-armhf", "k3s", "arm"),
        ("k3s", "k3s-airgap-images-amd64.tar.zst", "images.tar.zst", "amd64"),
        ("rke2", "rke2.linux-amd64.tar.gz", "rke2.tar.gz", "amd64"),
        ("rke2", "rke2-images.linux-arm64.tar.zst", "images.tar.zst", "arm64"),
        ("rke2", "rke2-images-core.linux-amd64.tar.zst", "images-core.tar.zst", "amd64"),
        ("rke2", "rke2-images-calico.linux-arm64.tar.zst", "images-calico.tar.zst", "arm64"),
        ("rke2", "rke2-images-ingress-nginx.linux-amd64.tar.zst", "images-ingress-nginx.tar.zst", "amd64"),
        ("rke2", "images-multus.tar.zst", "images-multus.tar.zst", ""),
        ("nano", "nano.tar.gz", "nano.tar.gz", ""),
    ],
)
def test_release_file_name_maps_to_artefact_and_architecture(distro: str, file: str, name: str, arch: str) -> None:
    assert named(distro, file) == (name, arch)


@pytest.mark.parametrize(
    ("distro", "file"), [("k3s", "rke2.tar.gz"), ("rke2", "k3s"), ("k8s", "k3s"), ("k3s", "k3s.txt")]
)
def test_unknown_file_name_is_rejected_with_known_names(distro: str, file: str) -> None:
    with pytest.raises(Unknown, match=r"k3s"):
        named(distro, file)


def test_checksum_lists_are_recognised_and_parsed() -> None:
    assert is_list_of_sums("sha256sum-amd64.txt")
    assert not is_list_of_sums("k3s")
    assert sums(f"{'A' * 64}  k3s\n{'b' * 64} *./x.tar.zst\nnonsense\n") == {"k3s": "a" * 64, "x.tar.zst": "b" * 64}
