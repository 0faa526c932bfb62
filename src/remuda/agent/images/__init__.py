"""Images of instructions: found in a local archive or pulled from a registry, and unpacked into a directory.

The directory appears atomically. Nothing outside it is written, whatever the image contains. The code that pulls is
imported with the first image, so that agents without images do not pay for it.
"""

from __future__ import annotations

from typing import Protocol

from remuda.agent import AgentError

__all__ = ["ImageError", "ImageSettings", "stage"]


class ImageError(AgentError):
    """Image that could not be unpacked.

    The text is for people: it appears in the plan Secret and in the log. It never contains a credential.
    """


class ImageSettings(Protocol):
    """Settings of the agent that decide where images come from: paths, which need not exist.
    When the root of the host is a folder, the paths are below it, as are those that registries.yaml names."""

    @property
    def images_directory(self) -> str: ...
    @property
    def agent_registries_file(self) -> str: ...
    @property
    def image_credential_provider_config(self) -> str: ...
    @property
    def image_credential_provider_bin_directory(self) -> str: ...
    @property
    def root(self) -> str: ...


def stage(reference: str, directory: str, config: ImageSettings) -> None:
    """Unpack the file system of the image to `directory`. Raises ImageError."""
    from remuda.agent.images.store import stage as really

    really(reference, directory, config)
