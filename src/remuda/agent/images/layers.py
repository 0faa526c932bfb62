"""Unpacking of layers, lowest first, into one tree.

A layer is a tar archive. An entry replaces the existing one; `.wh.name` removes `name` of the layers below, and
`.wh..wh..opq` removes everything that they have in its folder. Devices, pipes and sockets are skipped: instructions
need none.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import tarfile
from typing import IO

from remuda.agent.images import ImageError, streams
from remuda.agent.images.references import shown
from remuda.agent.images.tree import Tree

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_PIECE = 1 << 20
_PADDING = 256 << 20  # limit of the padding after the end of an archive


class _Hashed(io.RawIOBase):
    """Reader for tarfile that computes the checksum of everything it reads."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.sum = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self.sum.update(piece)
        return piece


def unpack(file: IO[bytes], tree: Tree, content_digest: str = "") -> None:
    """Unpack the layer in this file, compressed or not, on top of the tree.

    `content_digest`, if known, is the sha256 digest of the uncompressed layer. It is verified at the end: the tree is
    valid only after this has returned.
    """
    tree.begin_layer()
    try:
        with streams.plain(file) as plain:
            stream = _Hashed(plain)
            with streams.tar_entries(stream) as entries:
                for entry, content in entries:
                    _apply(entry, content, tree)
            _drain(stream)
            if content_digest and f"sha256:{stream.sum.hexdigest()}" != content_digest:
                raise ImageError(f"a layer is not what its digest {content_digest} says")
    except streams.BROKEN as error:
        raise ImageError(f"a layer could not be unpacked: {error}") from error


def _apply(entry: tarfile.TarInfo, content: IO[bytes] | None, tree: Tree) -> None:
    folder, name = posixpath.split(entry.name.rstrip("/"))
    if name == _OPAQUE:
        tree.hide_content(folder)
    elif name.startswith(_WHITEOUT + _WHITEOUT):
        pass  # metadata of the AUFS storage driver
    elif name.startswith(_WHITEOUT):
        hidden = name[len(_WHITEOUT) :]
        if hidden in ("", ".", ".."):
            raise ImageError(f"the image holds {shown(entry.name)}, a whiteout that would remove more than a file")
        tree.hide(posixpath.join(folder, hidden))
    elif entry.isdir():
        tree.directory(entry.name)
    elif entry.issym():
        tree.symbolic_link(entry.name, entry.linkname)
    elif entry.islnk():
        tree.hard_link(entry.name, entry.linkname)
    elif content is not None:
        tree.file(entry.name, entry.mode, content)


def _drain(stream: _Hashed) -> None:
    """Read to the end, so that the checksum covers all of the layer."""
    left = _PADDING
    while piece := stream.read(_PIECE):
        left -= len(piece)
        if left < 0:
            raise ImageError("a layer has data after its end")
