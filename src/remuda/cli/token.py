"""`remuda token`: users' API tokens."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, NAME, TABLE, WIDE, YAML, no_headers_option, output_option, print_records

if TYPE_CHECKING:
    from remuda.access.types import Token
    from remuda.kube.http import HttpClient
    from remuda.kube.kubeconfig import ClientConfig

_NEVER = "never"
_TOKEN, _KUBECONFIG = "token", "kubeconfig"


def seconds(_: click.Context, __: click.Parameter, value: str) -> float | None:
    """Parse a duration; None: the token never expires."""
    from remuda.kube import clock

    if value == _NEVER:
        return None
    try:
        found = clock.parse_duration(value)
    except clock.BadDuration as error:
        raise click.BadParameter(f"{value!r} {error}, or {_NEVER}") from None
    if found <= 0:
        raise click.BadParameter(f"{value!r} must be more than zero")
    return found


ttl_option = partial(
    click.option,
    "--ttl",
    show_default=True,
    callback=seconds,
    metavar="TIME",
    help=f"Lifetime of the token: 90m, 12h, 720h, or {_NEVER} (valid until revoked).",
)


@click.group(name="token", context_settings=HELP)
def command() -> None:
    """Manage the tokens with which users authenticate to clusters and to the management plane.

    \b
      remuda token create --user alice --ttl 12h --cluster prairie
      remuda token list
      remuda token revoke token-b7xqw2kd
    """


@command.command(context_settings=HELP)
@click.option("--user", default="", help="Owner of the token. Default: the user of the kubeconfig.")
@ttl_option(default="720h")
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    help="Limit the token to this cluster (id, name or NAMESPACE/NAME). Repeatable.",
)
@click.option("--description", default="", help="Purpose of the token.")
@click.option(
    "--output",
    "-o",
    type=click.Choice([_TOKEN, _KUBECONFIG]),
    default=_TOKEN,
    show_default=True,
    help="Print the token, or a kubeconfig of the management plane with the token.",
)
@kubeconfig_option
def create(
    user: str,
    ttl: float | None,
    clusters: tuple[str, ...],
    description: str,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Create a token and print it. It is not stored and cannot be shown again.

    \b
      remuda token create --user alice --ttl 12h --cluster prairie
      remuda token create --user alice -o kubeconfig > alice.kubeconfig
    """
    from remuda.access.tokens import mint
    from remuda.access.types import TOKEN
    from remuda.cli.clusters import find
    from remuda.cli.user_tokens import token_user
    from remuda.kube import clock

    if output == _KUBECONFIG and clusters:
        raise click.UsageError(
            "a token limited to clusters gives no access to the management plane: use remuda get kubeconfig"
        )
    until = None if ttl is None else clock.time() + ttl

    async def make(client: HttpClient) -> tuple[str, str, ClientConfig]:
        whose = await token_user(client, user)
        ids = [(await find(client, one)).id for one in clusters]
        made = mint(whose, expires_at=until, clusters=ids, description=description)
        await client.create(TOKEN.target, "", made.obj)
        return whose, made.bearer, client.access

    whose, bearer, access = connected(kubeconfig, make)
    server = access.server
    click.echo(_management_kubeconfig(access, whose, bearer) if output == _KUBECONFIG else bearer)
    validity = "until it is revoked" if until is None else f"until {clock.rfc3339(until)}"
    path = "/k8s/clusters/ID" if clusters else ""
    click.echo(
        f"token of user {whose}, valid {validity}. It is not shown again.\n"
        f"use it as a bearer token:  kubectl --server {server}{path} --token TOKEN …\n"
        f"revoke it with:            remuda token revoke {bearer.partition(':')[0]}",
        err=True,
    )


def _management_kubeconfig(access: ClientConfig, user: str, bearer: str) -> str:
    import yaml

    from remuda.kube import kubeconfig

    ca = access.ca.read_bytes() if isinstance(access.ca, Path) else access.ca
    config = kubeconfig.build(access.server, ca_pem=ca, token=bearer, user=user)
    return str(yaml.safe_dump(config, sort_keys=False)).rstrip()


@command.command(name="list", context_settings=HELP)
@click.option("--user", default="", help="Only tokens of this user.")
@click.option(
    "--all", "everything", is_flag=True, help="Include system tokens: each cluster has one in its kubeconfig."
)
@no_headers_option
@output_option(TABLE, WIDE, JSON, YAML, NAME)
@kubeconfig_option
def list_tokens(user: str, everything: bool, no_headers: bool, output: str, kubeconfig: Path | None) -> None:
    """List tokens, without their secrets: all of them, or your own if you are not an administrator.

    \b
      remuda token list --user alice
      remuda token list -o json
    """
    from remuda.access.types import SYSTEM, TOKEN_KIND
    from remuda.cli import user_tokens

    shown = [
        one
        for one in connected(kubeconfig, user_tokens.known)
        if user in ("", one.user_id) and (everything or one.metadata.labels.get(TOKEN_KIND) != SYSTEM)
    ]
    records = [
        {
            "name": one.metadata.name,
            "user": one.user_id,
            "goodUntil": _until(one),
            "clusters": one.cluster_names or "any",
            "description": one.description,
        }
        for one in shown
    ]
    heads = ("NAME", "USER", "VALID UNTIL", "CLUSTERS", "DESCRIPTION")
    fields = ("name", "user", "goodUntil", "clusters", "description")
    print_records(records, dict(zip(fields, heads, strict=True)), output, "no tokens", headers=not no_headers)


def _until(token: Token) -> str:
    from remuda.access.tokens import expired
    from remuda.kube import clock

    if token.expires_at is None:
        return "revoked"
    return f"{token.expires_at} (expired)" if expired(token, clock.time()) else token.expires_at


@command.command(context_settings=HELP)
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@kubeconfig_option
def revoke(names: tuple[str, ...], kubeconfig: Path | None) -> None:
    """Revoke tokens: any, or your own if you are not an administrator. They are invalid from the next request on, and
    connections that use them are closed.

    \b
      remuda token revoke token-b7xqw2kd
    """
    from remuda.cli import user_tokens

    async def remove(client: HttpClient) -> None:
        for text in names:
            name = text.partition(":")[0]  # accept the whole token, too: its name comes first
            await user_tokens.revoke(client, name)
            click.echo(f"token {name} revoked")

    connected(kubeconfig, remove)


@command.command(context_settings=HELP, hidden=True)
@click.option("--user", default="", help="Owner of the token. Default: the user of the kubeconfig.")
@click.option("--cluster", required=True, help="Id of the cluster.")
@ttl_option(default="1h")
@click.option("--context", default="", help="Context of the management plane's kubeconfig.")
@click.option("--certificate", is_flag=True, help="Print the certificate and key of the kubeconfig instead of a token.")
@kubeconfig_option
def credential(
    user: str, cluster: str, ttl: float | None, context: str, certificate: bool, kubeconfig: Path | None
) -> None:
    """Print an ExecCredential with a short-lived token or a certificate, for kubectl."""
    from remuda.cli import credentials

    if certificate:
        click.echo(credentials.certificate(kubeconfig, context))
        return
    click.echo(credentials.credential(kubeconfig, context, user, cluster, ttl or 3600.0))
