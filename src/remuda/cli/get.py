"""`remuda get`: things of clusters that are made when they are asked for."""

from __future__ import annotations

import click

from remuda.cli import get_kubeconfig
from remuda.cli.options import HELP


@click.group(name="get", context_settings=HELP)
def command() -> None:
    """Get what belongs to a cluster."""


command.add_command(get_kubeconfig.command)
