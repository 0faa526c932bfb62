"""The images of instructions: found in a local archive or pulled from a registry, and unpacked into a directory.

The directory appears whole or not at all. Nothing outside of it is written, whatever the image says. What pulls is
loaded with the first image: an agent that never sees one does not pay for it.
"""

from __future__ import annotations

from typing import Protocol

from remuda.agent.images.errors import ImageError

__all__ = ["ImageError", "Settings", "stage"]


class Settings(Protocol):
    """What of the agent's configuration decides where images come from. Paths; one that does not exist is no error.
    Where the root of the host is a folder, they are below it, as are those that registries.yaml names."""

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


def stage(reference: str, directory: str, config: Settings) -> None:
    """The file system of the image becomes `directory`, or ImageError says why not."""
    from remuda.agent.images.staging import stage as really

    really(reference, directory, config)
