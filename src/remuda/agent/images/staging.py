"""From a reference to a directory: the local archives are asked first, then the registries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.agent.images.errors import ImageError

if TYPE_CHECKING:
    from remuda.agent.images import Settings


def stage(reference: str, directory: str, config: Settings) -> None:
    raise ImageError(f"image {reference} was not staged")
