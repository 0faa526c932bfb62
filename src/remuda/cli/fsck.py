"""`remuda fsck`: check and repair a data directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import exit_codes
from remuda.cli.connection import DATA_DIR
from remuda.cli.exit_codes import clean_up_when_terminated
from remuda.cli.options import HELP

if TYPE_CHECKING:
    from remuda.apiserver.storage.fsck import FsckReport, Repair


class _DatabaseUnreadable(click.ClickException):
    exit_code = exit_codes.USAGE


@click.command(name="fsck", context_settings=HELP)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=DATA_DIR,
    show_default=True,
    help="Data directory of a stopped server.",
)
@click.option("--repair", "repairs", is_flag=True, help="Repair damaged objects.")
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="BACKUP",
    help="With --repair: file of `remuda backup` to take intact objects from.",
)
@click.option(
    "--forget",
    multiple=True,
    metavar="OBJECT",
    help="With --repair: delete this damaged object, which has no intact copy, by the name that fsck prints. "
    "Repeatable.",
)
def command(data_dir: Path, repairs: bool, source: Path | None, forget: tuple[str, ...]) -> None:
    """Check every object of a data directory against its checksum, and repair damaged ones.

    Stop the server first. --repair takes each object from the best intact copy: from the change log, which has the
    latest state, else from the backup, which may have an older state.

    \b
      remuda fsck --data-dir ./remuda-data
      remuda fsck --data-dir ./remuda-data --repair --from remuda.backup

    Exit code 0: all objects are intact or repaired; 1: some are damaged; 2: the database cannot be read.
    """
    from remuda.apiserver.storage import fsck
    from remuda.apiserver.storage.backup import ArchiveError
    from remuda.apiserver.storage.types import StoreUnusable

    if (source is not None or forget) and not repairs:
        raise click.UsageError("--from and --forget need --repair")
    clean_up_when_terminated()
    try:
        report = fsck.check(data_dir)
        repaired = fsck.repair(data_dir, source, forget) if repairs and not report.is_clean else []
        left = fsck.check(data_dir) if repairs else report
    except (StoreUnusable, ArchiveError) as error:
        raise _DatabaseUnreadable(str(error)) from None
    for line in _lines(report, repaired, is_repair=repairs):
        click.echo(line)
    if not left.is_clean:
        raise SystemExit(exit_codes.NO)


def _lines(report: FsckReport, repaired: list[Repair], *, is_repair: bool) -> list[str]:
    lines = [f"{report.path}: {report.objects:,} objects and {report.changes:,} changes are intact"]
    if not is_repair:
        lines += [f"damaged: {one}" for one in report.damaged]
    for one in repaired:
        if one.is_forgotten:
            lines.append(f"deleted: {one.damage}")
        elif not one.source:
            lines.append(f"damaged: {one.damage}: no intact copy was found")
        elif one.is_older:
            lines.append(f"repaired: {one.damage}, from {one.source}: this may be an older state")
        else:
            lines.append(f"repaired: {one.damage}, from {one.source}")
    done = "repaired" if is_repair else "damaged"
    if report.damaged_changes:
        lines.append(f"{done}: the change log ({report.damaged_changes}): clients restart their watches")
    if report.index_is_wrong:
        lines.append(f"{done}: the object index")
    if not report.is_clean and not is_repair:
        lines.append("Repair it with: remuda fsck --repair --from BACKUP")
    return lines
