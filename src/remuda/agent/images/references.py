"""Names of images: `[registry/]repository[:tag][@digest]`, with Docker's defaults.

The first part is a registry if it has a dot or a colon or is `localhost`; otherwise the image is on Docker Hub, and a
name without a slash is in its `library`. Without tag and digest the tag is `latest`; a digest takes precedence over a
tag.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remuda.agent.images import ImageError

DOCKER_HUB = "docker.io"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")

_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_LONGEST = 255


class ImageReference(NamedTuple):
    registry: str  # host[:port]
    repository: str
    tag: str  # "" if only a digest was given
    digest: str  # "" or algorithm:hex

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}{self.tag and ':' + self.tag}{self.digest and '@' + self.digest}"

    @property
    def wanted(self) -> str:
        """Return what to request from a registry: the digest, else the tag."""
        return self.digest or self.tag


def parse(text: str) -> ImageReference:
    """Parse a whole reference. Raise ImageError if it is invalid."""
    name, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise ImageError(f"{shown(text)} is not an image reference: the digest after @ is not sha256 or sha512")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry = first
    else:
        registry, rest = DOCKER_HUB, name
    repository, colon, tag = rest.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise ImageError(f"{shown(text)} is not an image reference: the tag after the colon is invalid")
    if registry in _HUB_NAMES:
        registry = DOCKER_HUB
        if repository and "/" not in repository:
            repository = f"library/{repository}"
    if not _HOST.fullmatch(registry):
        raise ImageError(f"{shown(text)} is not an image reference: its registry is not a host name")
    if not is_repository(repository):
        raise ImageError(
            f"{shown(text)} is not an image reference: a repository is made of lower case letters, digits and . _ - /"
        )
    return ImageReference(registry, repository, tag if tag or digest else "latest", digest)


def is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def is_repository(text: str) -> bool:
    return len(text) <= _LONGEST and _REPOSITORY.fullmatch(text) is not None


def shown(text: str) -> str:
    """Return untrusted text, quoted and shortened so that it is safe to show."""
    return repr(text[:200])
