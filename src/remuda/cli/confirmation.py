"""Confirmation of changes that destroy machines. Commands that make such a change share the option and the question."""

from __future__ import annotations

import sys

import click

from remuda.cli import exit_codes
from remuda.cli.text_wrap import print_note

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask before machines are deleted or replaced.")


def confirm_losses(losses: str, *, yes: bool) -> None:
    """Ask whether to go on with a change. `losses`: what it destroys, if anything. Exits unless the answer is yes.

    Without a terminal there is nobody to ask, so the change needs --yes.
    """
    if not losses or yes:
        return
    if not sys.stdin.isatty():
        print_note(
            f"nothing was changed: the change {losses}, and there is no terminal to ask for confirmation. To go on, "
            "repeat the command with --yes"
        )
        raise SystemExit(exit_codes.DESTROYS)
    print_note(f"The change {losses}.")
    if not click.confirm("Go on?", err=True):
        print_note("nothing was changed")
        raise SystemExit(exit_codes.NO)
