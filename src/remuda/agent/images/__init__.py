"""The images of instructions: found in a local archive or pulled from a registry, and unpacked into a directory.

The directory appears whole or not at all. Nothing outside of it is written, whatever the image says. What pulls is
loaded with the first image: an agent that never sees one does not pay for it.
"""

from __future__ import annotations

from typing import Protocol

from remuda.agent import AgentError

__all__ = ["ImageError", "ImageSettings", "stage"]


class ImageError(AgentError):
    """The image could not be staged.

    The text is a sentence for people: it ends up in the plan Secret and in the log. It never holds a credential.
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
