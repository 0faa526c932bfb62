"""`remuda user`: users of the management plane."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, NAME, TABLE, WIDE, YAML, no_headers_option, output_option, print_records

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.kube.objects import ObjectMeta

_LONGEST_NAME = 63  # characters of a namespace's name


@click.group(name="user", context_settings=HELP)
def command() -> None:
    """Manage users. Users authenticate with tokens (`remuda token`) and have roles in clusters (`remuda grant`).

    \b
      remuda user create alice
      remuda grant alice prairie cluster-member
      remuda get kubeconfig prairie --user alice --embed-token > alice.kubeconfig
    """


@command.command(context_settings=HELP)
@click.argument("name")
@click.option("--display-name", default="", help="Full name of the user.")
@click.option("--description", default="", help="Description of the user.")
@click.option(
    "--quota", default="", metavar="LIMITS", help="Limits of what the user may own: clusters=3,machines=10,tokens=20."
)
@click.option(
    "--namespace",
    "-n",
    default="",
    help="Let the user create clusters in this namespace, with credentials from NAMESPACE-credentials. Both are "
    "created if they are missing.",
)
@kubeconfig_option
def create(name: str, display_name: str, description: str, quota: str, namespace: str, kubeconfig: Path | None) -> None:
    """Create a user. NAME is the user name in the RBAC rules of every cluster.

    \b
      remuda user create alice --display-name "Alice Rider"
      remuda user create alice --namespace team-a --quota clusters=3,machines=10
    """
    from remuda.access.types import USER
    from remuda.cli.controller_options import parse_quota
    from remuda.providers.shared.credentials import namespace_for

    limits, credentials = parse_quota(quota), namespace_for(namespace)
    if len(credentials) > _LONGEST_NAME:
        raise click.BadParameter(
            f"the name is too long: the namespace {credentials} is created as well, and names are limited to "
            f"{_LONGEST_NAME} characters",
            param_hint="--namespace",
        )
    obj = {"apiVersion": USER.api_version, "kind": USER.name, "metadata": {"name": name}, "username": name}
    obj |= {"displayName": display_name} if display_name else {}
    obj |= {"description": description} if description else {}
    obj |= {"quota": limits} if limits else {}

    async def make(client: HttpClient) -> None:
        made = USER.decode(await client.create(USER.target, "", obj))
        if namespace:
            await _make_tenant(client, made.metadata, namespace)

    connected(kubeconfig, make)
    if namespace:
        click.echo(f"user {name} created; it may create clusters in {namespace}, with credentials from {credentials}")
    else:
        click.echo(f"user {name} created; give it access to a cluster with: remuda grant {name} CLUSTER ROLE")


async def _make_tenant(client: HttpClient, user: ObjectMeta, namespace: str) -> None:
    from remuda.access.roles import tenancy
    from remuda.kube.errors import AlreadyExists

    for target, place, obj in tenancy(user, namespace):
        with contextlib.suppress(AlreadyExists):
            await client.create(target, place, obj)


@command.command(name="list", context_settings=HELP)
@click.option("--all", "everybody", is_flag=True, help="Include system users: each cluster has one for its kubeconfig.")
@no_headers_option
@output_option(TABLE, WIDE, JSON, YAML, NAME)
@kubeconfig_option
def list_users(everybody: bool, no_headers: bool, output: str, kubeconfig: Path | None) -> None:
    """List users, and whether they are enabled.

    \b
      remuda user list
      remuda user list -o json
    """
    from remuda.access.system_users import CLUSTER
    from remuda.access.types import USER
    from remuda.kube.client import list_all

    async def look(client: HttpClient) -> list[dict[str, Any]]:
        listing = await list_all(client, USER.target)
        users = [USER.decode(item) for item in listing.items]
        return [
            {
                "name": user.metadata.name,
                "enabled": user.enabled,
                "displayName": user.display_name,
                "description": user.description,
            }
            for user in users
            if everybody or CLUSTER not in user.metadata.annotations
        ]

    heads = {"name": "NAME", "enabled": "ENABLED", "displayName": "DISPLAY NAME", "description": "DESCRIPTION"}
    print_records(connected(kubeconfig, look), heads, output, "no users", headers=not no_headers)


@command.command(context_settings=HELP)
@click.argument("name")
@kubeconfig_option
def delete(name: str, kubeconfig: Path | None) -> None:
    """Delete a user with its tokens and role grants.

    \b
      remuda user delete alice
    """
    from remuda.access.types import USER

    async def remove(client: HttpClient) -> None:
        await client.delete(USER.target, "", name)

    connected(kubeconfig, remove)
    click.echo(f"user {name} deleted; its tokens are invalid now")


def _switch(name: str, kubeconfig: Path | None, *, enabled: bool) -> None:
    from remuda.access.types import USER

    async def switch(client: HttpClient) -> None:
        await client.patch(USER.target, "", name, {"enabled": enabled})

    connected(kubeconfig, switch)


@command.command(context_settings=HELP)
@click.argument("name")
@kubeconfig_option
def disable(name: str, kubeconfig: Path | None) -> None:
    """Disable a user: deny all its requests until it is enabled again.

    \b
      remuda user disable alice
    """
    _switch(name, kubeconfig, enabled=False)
    click.echo(f"user {name} disabled")


@command.command(context_settings=HELP)
@click.argument("name")
@kubeconfig_option
def enable(name: str, kubeconfig: Path | None) -> None:
    """Enable a disabled user.

    \b
      remuda user enable alice
    """
    _switch(name, kubeconfig, enabled=True)
    click.echo(f"user {name} enabled")
