"""nano in RKE2 mode as an artefact of the shape of an RKE2 release: `rke2.tar.gz`.

The files of the release are in `files`; they have the release's names and are our own. Beside them, in share/rke2/nano,
are the packages of nano's own artefact, in a folder for each version: components of an older version go on with theirs.
"""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from remuda.providers.controlplane.artefacts import Artefacts, nano_bundles
from tests.lab.clusters import ManagementServer

NAME = "rke2.tar.gz"
VERSION = "v1.36.4+rke2r90"
_FILES = Path(__file__).parent / "files"
_MAIN = b'import runpy\n\nrunpy.run_module("remuda.lab.nano.rke2", run_name="__main__", alter_sys=True)\n'


def add(management: ManagementServer, folder: Path, version: str = VERSION) -> None:
    """Pack a release, and give it to the manager as its administrator does."""
    made = folder / NAME
    build(version, made)
    store = Artefacts(management.data / "artefacts")
    store.add("rke2", version, nano_bundles.architecture(), {NAME: made})


def build(version: str, target: Path) -> None:
    packages = target.with_name("nano.tar.gz")
    nano_bundles.build(version, packages)
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", 1, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content, mode in (*_release(version), *_packages(packages, f"share/rke2/nano/{version}")):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    packages.unlink()


def _release(version: str) -> Iterator[tuple[str, bytes, int]]:
    minor = ".".join(map(str, sys.version_info[:2]))
    for path in sorted(path for path in _FILES.rglob("*") if path.is_file()):
        name = path.relative_to(_FILES).as_posix()
        content = path.read_bytes().replace(b"@PYTHON@", minor.encode()).replace(b"@VERSION@", version.encode())
        yield name, content, 0o755 if name.startswith("bin/") else 0o644


def _packages(archive: Path, target: str) -> Iterator[tuple[str, bytes, int]]:
    with tarfile.open(archive) as packed:
        for member in packed:
            content = packed.extractfile(member)
            if content is not None and member.name.startswith("lib/"):
                name = member.name.removeprefix("lib/")
                yield f"{target}/{name}", _MAIN if name == "__main__.py" else content.read(), 0o644
