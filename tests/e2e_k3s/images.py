"""An archive of images, as k3s imports it from a file: made here, of one static program, with no registry anywhere."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.lab.limits import LIMIT_SECONDS

PAUSE, POD_IMAGE = "remuda.test/pause:1", "remuda.test/herd:1"
PROGRAM = "herd"  # what it is called in either


def pack(program: Path, target: Path, names: Sequence[str] = (PAUSE, POD_IMAGE)) -> Path:
    """As `docker save` writes it, compressed as k3s' own archives are: `target` must end with .tar.zst."""
    layer = _tar({PROGRAM: program.read_bytes()}, mode=0o755)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{PROGRAM}"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    about = {"Config": named, "RepoTags": [*names], "Layers": ["layer.tar"]}
    archive = _tar({named: config, "layer.tar": layer, "manifest.json": json.dumps([about]).encode()})
    subprocess.run(
        ["zstd", "--quiet", "--force", "-", "-o", str(target)], input=archive, check=True, timeout=LIMIT_SECONDS
    )
    return target


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()
