"""Options of the commands that run controllers: which ones, and the limits of users."""

from __future__ import annotations

import click

QUOTA_FIELDS = ("clusters", "machines", "tokens")


def _split(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


controllers_option = click.option(
    "--controllers",
    metavar="NAMES",
    callback=_split,
    help="Run only these, separated by commas: controllers, or the groups core (Cluster API itself), providers, "
    "provisioning and access (users, and the proxy to clusters). Default: all. Next to upstream's Cluster API core: "
    "providers,provisioning,access.",
)


def _limits(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, int]:
    return parse_quota(value or "")


def parse_quota(text: str) -> dict[str, int]:
    """Read `clusters=3,machines=10`. Raises click.BadParameter."""
    found: dict[str, int] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, amount = part.partition("=")
        if name not in QUOTA_FIELDS or not (amount.isascii() and amount.isdigit() and len(amount) < 10):
            raise click.BadParameter(f"{part!r} is not one of {', '.join(f'{field}=N' for field in QUOTA_FIELDS)}")
        found[name] = int(amount)
    return found


user_quota_option = click.option(
    "--user-quota",
    metavar="LIMITS",
    callback=_limits,
    help="Limits for each user whose User object has no quota: clusters=3,machines=10,tokens=20. Default: unlimited. "
    "Administrators have no limits.",
)
