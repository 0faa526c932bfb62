"""`remuda restore`: create a data directory from a backup."""

from __future__ import annotations

from pathlib import Path

import click

from remuda.cli.backup import damage_note
from remuda.cli.exit_codes import clean_up_when_terminated
from remuda.cli.options import HELP


@click.command(name="restore", context_settings=HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("data_dir", type=click.Path(file_okay=False, path_type=Path))
def command(file: Path, data_dir: Path) -> None:
    """Create DATA_DIR from a backup FILE.

    DATA_DIR must be empty or missing. FILE is verified first; a failed restore leaves no partial DATA_DIR.

    \b
      remuda restore remuda.backup ./remuda-data
    """
    from remuda.apiserver.storage.backup import ArchiveError, restore

    clean_up_when_terminated()
    try:
        manifest = restore(file, data_dir)
    except ArchiveError as error:
        raise click.ClickException(str(error)) from None
    restored = f"restored {data_dir} from {file}, taken {manifest.created} at revision {manifest.revision}"
    click.echo(restored + damage_note(manifest))
