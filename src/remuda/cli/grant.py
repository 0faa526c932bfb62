"""`remuda grant`: grant and revoke a user's role in a cluster."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP

if TYPE_CHECKING:
    from remuda.cli.clusters import Found
    from remuda.kube.http import HttpClient


@click.command(name="grant", context_settings=HELP)
@click.argument("user")
@click.argument("cluster", shell_complete=shell_completion.clusters)
@click.argument("role", required=False, default="")
@click.option("--group", is_flag=True, help="Grant access to a group: USER is its name.")
@click.option("--revoke", is_flag=True, help="Revoke ROLE; without ROLE, revoke all roles of USER in CLUSTER.")
@kubeconfig_option
def command(user: str, cluster: str, role: str, group: bool, revoke: bool, kubeconfig: Path | None) -> None:
    """Grant USER a ROLE in CLUSTER, or revoke it.

    \b
    cluster-owner       full access (cluster-admin)
    cluster-member      read and write in namespaces, except RBAC (edit)
    cluster-viewer      read-only, except Secrets (view)
    clusterrole:NAME    a ClusterRole of that cluster

    CLUSTER is an id (c-m-abcd1234), a name, or NAMESPACE/NAME.

    \b
      remuda grant alice prairie cluster-member
      remuda grant alice prairie cluster-member --revoke
      remuda grant --group wranglers fleet-default/prairie clusterrole:monitoring
      kubectl get clusterroletemplatebindings -A
    """
    from remuda.cli import clusters

    if not role and not revoke:
        raise click.UsageError("missing ROLE: cluster-owner, cluster-member, cluster-viewer or clusterrole:NAME")

    async def act(client: HttpClient) -> None:
        found = await clusters.find(client, cluster)
        if revoke:
            await _revoke(client, found, user, role, group)
        else:
            await _grant(client, found, user, role, group)

    connected(kubeconfig, act)


async def _grant(client: HttpClient, cluster: Found, user: str, role: str, group: bool) -> None:
    from remuda.access.types import GRANT
    from remuda.kube.errors import AlreadyExists

    obj: dict[str, Any] = {
        "apiVersion": GRANT.api_version,
        "kind": GRANT.name,
        "metadata": {"name": name_of(user, role, group)},
        "clusterName": cluster.id,
        "groupName" if group else "userName": user,
        "roleTemplateName": role,
    }
    try:
        await client.create(GRANT.target, cluster.id, obj)
    except AlreadyExists:
        click.echo(f"{user} is already {role} in {cluster}")
        return
    click.echo(f"{user} is {role} in {cluster}")


async def _revoke(client: HttpClient, cluster: Found, user: str, role: str, group: bool) -> None:
    from remuda.access.types import GRANT
    from remuda.kube.errors import ignore_not_found

    listing = await client.list(GRANT.target, cluster.id)
    grants = [GRANT.decode(item) for item in listing.items]
    same = [
        one
        for one in grants
        if (one.group_name if group else one.user_name) == user and role in ("", one.role_template_name)
    ]
    if not same:
        known = ", ".join(f"{one.user_name or one.group_name} ({one.role_template_name})" for one in grants) or "none"
        raise click.ClickException(f"{user} has no grant of {role or 'any role'} in {cluster}; grants there: {known}")
    for one in same:
        with ignore_not_found():
            await client.delete(GRANT.target, cluster.id, one.metadata.name)
        click.echo(f"{user} is no longer {one.role_template_name} in {cluster}")


def name_of(user: str, role: str, group: bool) -> str:
    """Return the name of a grant, derived from its contents: granting twice creates one object."""
    text = f"{'group' if group else 'user'}/{user}/{role}"
    return f"grant-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
