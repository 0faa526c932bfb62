"""Backup and restore of a data directory, with a summary for the user."""

from __future__ import annotations

from pathlib import Path

from remuda.apiserver.storage import backup as storage
from remuda.apiserver.storage.backup import ArchiveError

__all__ = ["ArchiveError", "backup", "restore"]


def backup(data_dir: Path, file: Path, *, force: bool = False) -> str:
    manifest = storage.backup(data_dir, file, force=force)
    size = file.stat().st_size
    saved = (
        f"saved {data_dir} at revision {manifest.revision} to {file} ({size:,} bytes, {len(manifest.members)} files)"
    )
    return saved + _damage(manifest)


def restore(file: Path, data_dir: Path) -> str:
    manifest = storage.restore(file, data_dir)
    restored = f"restored {data_dir} from {file}, taken {manifest.created} at revision {manifest.revision}"
    return restored + _damage(manifest)


def _damage(manifest: storage.Manifest) -> str:
    """Return a note on damaged objects: a damaged database is backed up, too, for its intact objects."""
    lines = "".join(f"\ndamaged object in the backup: {one}" for one in manifest.damaged)
    advice = "\nKeep an older backup: `remuda fsck --repair --from BACKUP` restores objects from it."
    return lines + advice if lines else ""
