"""Which controllers to run, as commands that run controllers ask for it."""

from __future__ import annotations

import click


def _split(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


controllers_option = click.option(
    "--controllers",
    metavar="NAMES",
    callback=_split,
    help="Only these, separated by commas: names of controllers, or of groups: core (Cluster API itself), "
    "providers, provisioning, access (users, and the proxy to clusters). Everything by default. Where Cluster API's "
    "core is upstream's: providers,provisioning,access.",
)
