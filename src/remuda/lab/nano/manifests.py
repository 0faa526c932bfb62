"""Manifests in server/manifests: applied at the start and whenever they change; checked every 15 s.

As in K3s, the objects of a removed file stay, `<file>.skip` beside a file disables it, and `disable` names files that
are not applied. Errors are logged, and the file is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import yaml

from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient

log = logging.getLogger(__name__)

_LOOK_SECONDS = 15.0
_AGAIN_SECONDS = 3.0
_ENDINGS = (".yaml", ".yml", ".json")

Stamp = tuple[int, int]


class Manifests:
    def __init__(self, folder: Path, client: HttpClient, disabled: Collection[str], manager: str) -> None:
        self._folder = folder
        self._client = client
        self._disabled = disabled
        self._manager = manager
        self._applied: dict[Path, Stamp] = {}
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    async def run(self) -> None:
        while True:
            well = await self.apply_changed()
            await asyncio.sleep(_LOOK_SECONDS if well else _AGAIN_SECONDS)

    async def apply_changed(self) -> bool:
        """Apply the manifests that have changed; return whether all of them are applied."""
        well = True
        for path, stamp in (await asyncio.to_thread(wanted, self._folder, self._disabled)).items():
            if self._applied.get(path) == stamp:
                continue
            try:
                for document in await asyncio.to_thread(documents, path):
                    await self._apply(document)
            except (StatusError, yaml.YAMLError, ValueError, OSError) as error:
                log.warning("cannot apply %s: %s", path.relative_to(self._folder), error)
                well = False
            else:
                self._applied[path] = stamp
        return well

    async def _apply(self, document: dict[str, Any]) -> None:
        api_version, kind = document.get("apiVersion", ""), document.get("kind", "")
        meta = document.get("metadata") or {}
        if not api_version or not kind or not meta.get("name"):
            raise ValueError("an object without apiVersion, kind and metadata.name")
        plural, namespaced = await self._resource(api_version, kind)
        namespace = meta.get("namespace") or "default" if namespaced else ""
        await self._client.patch(
            Target(api_version, plural),
            namespace,
            meta["name"],
            document,
            kind="apply",
            field_manager=self._manager,
            force=True,
        )

    async def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        if (api_version, kind) not in self._kinds:
            path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            for resource in msgspec.json.decode(await self._client.raw_get(path)).get("resources") or ():
                if "/" not in resource["name"]:
                    self._kinds[api_version, resource["kind"]] = (resource["name"], resource["namespaced"])
        found = self._kinds.get((api_version, kind))
        if found is None:
            raise ValueError(f"the cluster has no kind {kind} of {api_version}")
        return found


def wanted(folder: Path, disabled: Collection[str]) -> dict[Path, Stamp]:
    """Return the files to apply, in the order of their names, each with a fingerprint of its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _ENDINGS or path.stem in disabled or not path.is_file():
            continue
        if path.with_name(path.name + ".skip").exists():
            continue
        status = path.stat()
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def documents(path: Path) -> list[dict[str, Any]]:
    """Return every object of a file; lists are split."""
    found: list[dict[str, Any]] = []
    for document in yaml.safe_load_all(path.read_text()):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ValueError("it contains a document that is not an object")
        items = document.get("items")
        found += items if str(document.get("kind", "")).endswith("List") and isinstance(items, list) else [document]
    return found
