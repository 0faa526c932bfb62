from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.images import ImageError
from remuda.agent.images.references import ImageReference, parse

SUM = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("busybox", ImageReference("docker.io", "library/busybox", "latest", "")),
        ("rancher/installer:v1.2.3-k3s1", ImageReference("docker.io", "rancher/installer", "v1.2.3-k3s1", "")),
        ("index.docker.io/busybox", ImageReference("docker.io", "library/busybox", "latest", "")),
        ("localhost/a/b", ImageReference("localhost", "a/b", "latest", "")),
        ("registry.example.com:5000/a:1", ImageReference("registry.example.com:5000", "a", "1", "")),
        ("[::1]:5000/a", ImageReference("[::1]:5000", "a", "latest", "")),
        (f"example.com/a@{SUM}", ImageReference("example.com", "a", "", SUM)),
        (f"example.com/a:1@{SUM}", ImageReference("example.com", "a", "1", SUM)),
    ],
)
def test_image_reference_uses_docker_defaults(text: str, expected: ImageReference) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "/", "UPPER", "a:b c", "a@sha256:1", "a@md5:" + "0" * 32, "exa mple.com/a", "example.com/", "a/../b", "a//b",
     "a:", "https://example.com/a", "a\n", "example.com/a/" + "b" * 300],
)  # fmt: skip
def test_invalid_image_reference_raises_image_error(text: str) -> None:
    with pytest.raises(ImageError, match="is not an image reference"):
        parse(text)


@given(st.text(max_size=40))
def test_arbitrary_text_parses_or_raises_image_error(text: str) -> None:
    try:
        found = parse(text)
    except ImageError:
        return
    assert ".." not in found.repository.split("/")
    assert found.wanted
