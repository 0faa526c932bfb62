"""`remuda get kubeconfig`: create a kubeconfig that reaches a cluster through the proxy."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import shell_completion
from remuda.cli.connection import chosen_kubeconfig, connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.token import ttl_option

if TYPE_CHECKING:
    from remuda.cli.clusters import Found
    from remuda.kube.http import HttpClient


@click.command(name="kubeconfig", context_settings=HELP)
@click.argument("cluster", shell_complete=shell_completion.clusters)
@click.option(
    "--user",
    default="",
    help="User that the kubeconfig authenticates as. Default: your own user on the management plane.",
)
@click.option("--embed-token", is_flag=True, help="Embed a token, instead of a command that requests one.")
@ttl_option(default="12h")
@click.option("--server", default="", metavar="URL", help="URL of the proxy. Default: that of the management plane.")
@click.option(
    "--server-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --server: PEM file with the CA of its certificate.",
)
@click.option("--merge", is_flag=True, help="Add it to ~/.kube/config, instead of printing it.")
@click.option("--context", default="", metavar="NAME", help="Name of its context. Default: the name of the cluster.")
@kubeconfig_option
def command(
    cluster: str,
    user: str,
    embed_token: bool,
    ttl: float | None,
    server: str,
    server_ca: Path | None,
    merge: bool,
    context: str,
    kubeconfig: Path | None,
) -> None:
    """Print a kubeconfig that reaches CLUSTER (an id, a name, or NAMESPACE/NAME) through the proxy.

    By default it contains no secret: kubectl runs `remuda token credential`, which uses your kubeconfig of the
    management plane to request a token for one hour, or to read your certificate. The kubeconfig has the full path of
    `remuda`, so it also works outside of a virtual environment, on this machine. With --embed-token it works on any
    machine, and you can give it to somebody else; it is valid for --ttl.

    \b
      remuda get kubeconfig prairie > prairie.kubeconfig
      kubectl --kubeconfig prairie.kubeconfig get nodes
      remuda get kubeconfig prairie --merge
      kubectl --context prairie get nodes
      remuda get kubeconfig prairie --user alice --embed-token > alice.kubeconfig
    """
    import yaml

    from remuda.cli import clusters
    from remuda.cli.user_tokens import caller, token_user

    authority = server_ca.read_bytes() if server_ca else b""

    async def make(client: HttpClient) -> dict[str, Any]:
        found = await clusters.find(client, cluster)
        if not (user or embed_token or server) and await _known_by_certificate(client):
            whose, who = (await caller(client)).username, _exec(found, "", kubeconfig, certificate=True)
        else:
            whose = await token_user(client, user, cluster)
            who = await _embedded(client, found, whose, ttl) if embed_token else _exec(found, user, kubeconfig)
        return _config(context or found.name, whose, await _stanza(client, found, server, authority), who)

    made = connected(kubeconfig, make)
    if merge:
        _merge(made)
    else:
        click.echo(yaml.safe_dump(made, sort_keys=False), nl=False)


def _config(name: str, user: str, where: dict[str, Any], who: dict[str, Any]) -> dict[str, Any]:
    context = {"cluster": name, "user": f"{user}@{name}"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": where}],
        "users": [{"name": context["user"], "user": who}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }


def _merge(made: dict[str, Any]) -> None:
    from remuda.cli.kubeconfig_merge import MergeRefused, merge_into

    path, name = Path.home() / ".kube" / "config", made["current-context"]
    try:
        current = merge_into(path, made)
    except MergeRefused as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"context {name} added to {path}", err=True)
    use = f"kubectl --context {name} get nodes" if current != name else "kubectl get nodes"
    click.echo(f"to use it: {use}", err=True)


async def _embedded(client: HttpClient, cluster: Found, user: str, ttl: float | None) -> dict[str, Any]:
    from remuda.access.tokens import mint
    from remuda.access.types import TOKEN
    from remuda.kube import clock

    until = None if ttl is None else clock.time() + ttl
    made = mint(user, expires_at=until, clusters=[cluster.id], description=f"in a kubeconfig of {cluster.name}")
    await client.create(TOKEN.target, "", made.obj)
    validity = "until it is revoked" if until is None else f"until {clock.rfc3339(until)}"
    name = made.bearer.partition(":")[0]
    click.echo(f"valid for {cluster} {validity}; revoke it with: remuda token revoke {name}", err=True)
    return {"token": made.bearer}


async def _known_by_certificate(client: HttpClient) -> bool:
    """Return whether the proxy accepts the caller's client certificate.

    The embedded API server's proxy does; on any other Kubernetes the proxy accepts tokens only.
    """
    return client.access.method == "certificate" and await _is_embedded(client)


def _exec(cluster: Found, user: str, kubeconfig: Path | None, *, certificate: bool = False) -> dict[str, Any]:
    """Return the exec stanza. It names the kubeconfig and the context of the management plane, because $KUBECONFIG or
    another current context could refer to the new kubeconfig itself."""
    from remuda.cli.credentials import API_VERSION

    path, context = chosen_kubeconfig(kubeconfig)
    own = _own_command()
    arguments = [*own[1:], "token", "credential", "--cluster", cluster.id, "--kubeconfig", str(path)]
    arguments += ["--context", context] if context else []
    arguments += ["--user", user] if user else []
    arguments += ["--certificate"] if certificate else []
    return {
        "exec": {
            "apiVersion": API_VERSION,
            "command": own[0],
            "args": arguments,
            "interactiveMode": "Never",
            "provideClusterInfo": False,
            "installHint": "this kubeconfig needs the command remuda, which gets credentials from the management plane",
        }
    }


def _own_command() -> list[str]:
    """Return this program by its full path, so that kubectl finds it whatever the PATH is."""
    script = Path(sys.executable).parent / "remuda"  # where pip, pipx and uv install it
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "remuda.cli.main"]


async def _stanza(client: HttpClient, cluster: Found, server: str, authority: bytes) -> dict[str, Any]:
    """Return the kubeconfig stanza of the proxy to the cluster."""
    from remuda.access.interfaces import PREFIX

    if server:
        return _cluster(f"{server.rstrip('/')}{PREFIX}{cluster.id}", authority)
    if not await _is_embedded(client):
        return await _published(client, cluster)
    access = client.access
    ca = access.ca.read_bytes() if isinstance(access.ca, Path) else access.ca
    return _cluster(f"{access.server.rstrip('/')}{PREFIX}{cluster.id}", ca)


async def _is_embedded(client: HttpClient) -> bool:
    """Return whether the server is the embedded one, which serves hosts and the proxy on the port of its API."""
    from remuda.kube.errors import Forbidden, NotFound

    try:
        await client.raw_get("/cacerts")
    except (Forbidden, NotFound):
        return False
    return True


async def _published(client: HttpClient, cluster: Found) -> dict[str, Any]:
    """Return the stanza of the cluster's own kubeconfig: on another Kubernetes the proxy is on the manager's port."""
    from remuda.capi.names import KUBECONFIG_KEY, kubeconfig_secret
    from remuda.capi.remote import secret_data
    from remuda.kube import kubeconfig
    from remuda.kube.errors import Forbidden

    try:
        data = (
            await secret_data(client, cluster.namespace, kubeconfig_secret(cluster.name)) if cluster.namespace else None
        )
    except Forbidden:
        data = None
    if not data:
        raise click.ClickException("cannot determine the URL of the proxy: set it with --server and --server-ca")
    found = kubeconfig.parse(data.get(KUBECONFIG_KEY, b""), origin=f"the kubeconfig of {cluster}")
    return _cluster(found.server, found.ca if isinstance(found.ca, bytes) else b"")


def _cluster(server: str, ca: bytes) -> dict[str, Any]:
    return {"server": server, **({"certificate-authority-data": base64.b64encode(ca).decode()} if ca else {})}
