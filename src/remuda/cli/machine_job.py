"""`remuda machine-job`: the program of a machine's Job. Not for users."""

from __future__ import annotations

import click


@click.command(name="machine-job", hidden=True)
def command() -> None:
    """Run the job that is mounted at /run/secrets/machine."""
    from remuda.providers.machine.job import main

    main()
