"""`remuda machine-job`: what runs in a machine's Job. Not for people."""

from __future__ import annotations

import click


@click.command(name="machine-job", hidden=True)
def command() -> None:
    """Carry out the order that is mounted at /run/secrets/machine."""
    from remuda.providers.machine.job import main

    main()
