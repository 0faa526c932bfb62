"""Images made by hand: layers, manifests and archives as the tools of others write them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def entry(
    name: str, content: bytes | None = None, mode: int = 0o644, **attributes: Any
) -> tuple[tarfile.TarInfo, bytes]:
    """One entry of a layer: a file, or what `type` and `linkname` say."""
    made = tarfile.TarInfo(name)
    made.mode, made.size, made.uid, made.gid = mode, len(content or b""), 1234, 1234
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made, content or b""


def folder(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, mode=mode, type=tarfile.DIRTYPE)


def symbolic_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.LNKTYPE, linkname=target)


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for made, content in entries:
            archive.addfile(made, io.BytesIO(content))
    return buffer.getvalue()


def compressed(layer: bytes) -> bytes:
    return gzip.compress(layer, mtime=0)


@dataclass
class Image:
    """Layers, and the documents that describe them."""

    layers: Sequence[bytes]  # tar archives
    architecture: str = "amd64"
    blobs: dict[str, bytes] = field(default_factory=dict)  # all but the manifest, by digest
    manifest: bytes = b""

    def __post_init__(self) -> None:
        described = []
        config = {
            "architecture": self.architecture,
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in self.layers]},
        }
        self.config = json.dumps(config).encode()
        self.blobs[digest(self.config)] = self.config
        for layer in self.layers:
            blob = compressed(layer)
            self.blobs[digest(blob)] = blob
            described.append(
                {
                    "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                    "size": len(blob),
                    "digest": digest(blob),
                }
            )
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    "size": len(self.config),
                    "digest": digest(self.config),
                },
                "layers": described,
            }
        ).encode()

    @property
    def digest(self) -> str:
        return digest(self.manifest)


def index(images: Mapping[str, Image], media_type: str = INDEX) -> bytes:
    """By platform: os/architecture[/variant]."""
    entries = []
    for platform, image in images.items():
        os, architecture, *variant = platform.split("/")
        of = {"os": os, "architecture": architecture, **({"variant": variant[0]} if variant else {})}
        entries.append({"mediaType": MANIFEST, "size": len(image.manifest), "digest": image.digest, "platform": of})
    return json.dumps({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}).encode()


def docker_save(image: Image, *tags: str) -> bytes:
    """As `docker save` has written it for years: layers not compressed, the list at the end."""
    names = [f"{number}/layer.tar" for number in range(len(image.layers))]
    listed = [{"Config": "config.json", "RepoTags": list(tags), "Layers": names}]
    return tar(
        entry("config.json", image.config),
        *(entry(name, layer) for name, layer in zip(names, image.layers, strict=True)),
        entry("manifest.json", json.dumps(listed).encode()),
    )


def oci_layout(images: Mapping[str, Image], annotation: str = "io.containerd.image.name") -> bytes:
    """As `ctr image export` writes it; images by name."""
    listed = [
        {"mediaType": MANIFEST, "size": len(image.manifest), "digest": image.digest, "annotations": {annotation: name}}
        for name, image in images.items()
    ]
    blobs: dict[str, bytes] = {}
    for image in images.values():
        blobs.update({**image.blobs, image.digest: image.manifest})
    return tar(
        entry("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
        entry("index.json", json.dumps({"schemaVersion": 2, "manifests": listed}).encode()),
        *(entry(f"blobs/{name.replace(':', '/')}", content) for name, content in blobs.items()),
    )


@dataclass
class Settings:
    """Of an agent whose files are all below one folder."""

    folder: Path
    root: str = ""

    @property
    def images_directory(self) -> str:
        return str(self.folder / "images")

    @property
    def agent_registries_file(self) -> str:
        return str(self.folder / "registries.yaml")

    @property
    def image_credential_provider_config(self) -> str:
        return str(self.folder / "plugins.yaml")

    @property
    def image_credential_provider_bin_directory(self) -> str:
        return str(self.folder / "plugins")
