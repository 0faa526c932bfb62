"""Unpacking of a reference into a directory: from the local archives if they have it, else from the registries.

The image is unpacked into a temporary directory of the same file system, which is renamed when it is complete. The next
run at the same place removes what an interrupted one left.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from remuda.agent.images import ImageError, archives, layers, manifests, registries
from remuda.agent.images.credentials import Plugins, RegistryCredentials, from_docker
from remuda.agent.images.platforms import Platform, this_host
from remuda.agent.images.references import ImageReference, parse
from remuda.agent.images.registries import Endpoint, below
from remuda.agent.images.registry import ImageRegistry
from remuda.agent.images.tree import Tree, allowance
from remuda.agent.images.web import Web

if TYPE_CHECKING:
    from remuda.agent.images import ImageSettings

_PART = ".part-"


def stage(reference: str, directory: str, config: ImageSettings) -> None:
    wanted = parse(reference)
    try:
        with _place(os.path.abspath(directory)) as (root, scratch):
            tree = Tree(root, allowance())
            found, notes = archives.find(wanted, below(config.images_directory, config.root))
            if found is not None:
                archives.unpack(found, this_host(), scratch, tree)
            else:
                _Pull(wanted, config).into(tree, scratch, notes)
    except ImageError as error:
        raise ImageError(f"image {wanted}: {error}") from error
    except OSError as error:
        raise ImageError(f"image {wanted} could not be written to {directory}: {error.strerror or error}") from error


@contextlib.contextmanager
def _place(directory: str) -> Iterator[tuple[str, str]]:
    """Yield a directory that replaces `directory` if all goes well, and a scratch directory."""
    above = os.path.dirname(directory)
    os.makedirs(above, mode=0o755, exist_ok=True)
    for left_behind in glob.glob(glob.escape(directory) + _PART + "*"):
        shutil.rmtree(left_behind)
    work = tempfile.mkdtemp(prefix=os.path.basename(directory) + _PART, dir=above)
    try:
        root, scratch = os.path.join(work, "root"), os.path.join(work, "scratch")
        os.mkdir(scratch, 0o700)
        os.mkdir(root, 0o755)
        os.chmod(root, 0o755)  # noqa: S103 - whatever the umask is: the instruction may run as someone else
        yield root, scratch
        # The image appears at its place by one rename, so an instruction never sees a part of it.
        if os.path.lexists(directory):
            os.rename(directory, os.path.join(work, "before"))
        os.rename(root, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Pull:
    """Pull of one image: the manifest from the first endpoint that has it, its blobs (by digest) from any endpoint."""

    def __init__(self, reference: ImageReference, config: ImageSettings) -> None:
        self._reference = reference
        self._known = registries.read(config.agent_registries_file, config.root)
        self._plugins = Plugins(
            below(config.image_credential_provider_config, config.root),
            below(config.image_credential_provider_bin_directory, config.root),
        )
        self._registries = [self._registry(endpoint) for endpoint in self._known.endpoints(reference)]

    def into(self, tree: Tree, scratch: str, notes: list[str]) -> None:
        wanted = self._layers(this_host(), notes)
        for layer in wanted:
            if layer.size > tree.allowance.limit:
                raise ImageError(
                    f"its layer {layer.digest} has {layer.size} bytes; REMUDA_IMAGE_LIMIT_BYTES allows more"
                )
            with tempfile.TemporaryFile(dir=scratch) as file:
                self._fetch(layer, file)
                file.seek(0)
                layers.unpack(file, tree)

    def _registry(self, endpoint: Endpoint) -> ImageRegistry:
        def credentials() -> RegistryCredentials | None:
            return (
                self._known.credentials(endpoint.host)
                or self._plugins.credentials(f"{endpoint.host}/{endpoint.repository}")
                or from_docker(endpoint.host)
            )

        def trust(host: str) -> ssl.SSLContext:
            return self._known.context(host, beside=endpoint.host)

        return ImageRegistry(endpoint, Web(trust), credentials)

    def _layers(self, host: Platform, notes: list[str]) -> list[manifests.Layer]:
        troubles = list(notes)
        for registry in list(self._registries):
            try:
                return manifests.layers(registry.manifest(self._reference.wanted), host, registry.manifest)
            except ImageError as error:
                troubles.append(f"{registry.endpoint.base}: {error}")
                self._registries.remove(registry)
        raise ImageError("it could not be pulled. " + "; ".join(troubles))

    def _fetch(self, layer: manifests.Layer, file: IO[bytes]) -> None:
        troubles = []
        for registry in self._registries:
            try:
                file.seek(0)
                file.truncate()
                registry.blob(layer, file)
                return
            except ImageError as error:
                troubles.append(f"{registry.endpoint.base}: {error}")
        raise ImageError("it could not be pulled. " + "; ".join(troubles))
