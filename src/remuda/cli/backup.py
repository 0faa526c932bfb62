"""`remuda backup`: save a data directory to one file, and print a summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli.exit_codes import clean_up_when_terminated
from remuda.cli.options import HELP

if TYPE_CHECKING:
    from remuda.apiserver.storage.backup import Manifest


@click.command(name="backup", context_settings=HELP)
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def command(data_dir: Path, file: Path, force: bool) -> None:
    """Save the whole state of DATA_DIR to FILE.

    The server may be running: the copy is consistent and contains every write that was acknowledged before the command
    started. FILE also contains the certificate authority, keys and kubeconfigs, so that clients keep working after a
    restore on another machine. Protect it like the directory itself.

    \b
      remuda backup ./remuda-data remuda.backup
    """
    from remuda.apiserver.storage.backup import ArchiveError, backup

    clean_up_when_terminated()
    try:
        manifest = backup(data_dir, file, force=force)
    except ArchiveError as error:
        raise click.ClickException(str(error)) from None
    size = file.stat().st_size
    saved = (
        f"saved {data_dir} at revision {manifest.revision} to {file} ({size:,} bytes, {len(manifest.members)} files)"
    )
    click.echo(saved + damage_note(manifest))


def damage_note(manifest: Manifest) -> str:
    """Return a note on damaged objects: a damaged database is backed up, too, for its intact objects."""
    lines = "".join(f"\ndamaged object in the backup: {one}" for one in manifest.damaged)
    advice = "\nKeep an older backup: `remuda fsck --repair --from BACKUP` restores objects from it."
    return lines + advice if lines else ""
