"""`remuda export cluster`: print the manifest of a cluster as it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import cluster_edits, shell_completion
from remuda.cli.connection import connected, kubeconfig_option, show_warning
from remuda.cli.options import HELP, namespace_option

if TYPE_CHECKING:
    from remuda.kube.client import Target
    from remuda.kube.http import HttpClient
    from remuda.kube.objects import Key

Json = dict[str, Any]

_OTHERWISE = "to export them: kubectl get clusters.cluster.x-k8s.io {name} -n {namespace} -o yaml, and so on"


@click.group(name="export", context_settings=HELP)
def command() -> None:
    """Print the manifest of a cluster as it runs.

    \b
      remuda export cluster prairie > prairie.yaml
    """


@command.command(context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.clusters)
@namespace_option("cluster")
@kubeconfig_option
def cluster(name: str, namespace: str, kubeconfig: Path | None) -> None:
    """Print the manifest of a cluster as it runs: the declared Cluster, its machine Configs and its ConfigMaps.

    To apply this manifest changes nothing. Edit it, look at `remuda plan -f`, then use `remuda apply -f`. Secrets are
    not in it: a comment names those that the cluster needs, and the command prints the same to standard error.

    \b
      remuda export cluster prairie > prairie.yaml
      remuda plan -f prairie.yaml
    """
    from remuda.cli import yaml_output

    async def work(client: HttpClient) -> tuple[list[Json], list[str]]:
        found = await cluster_edits.find(client, namespace, name, _OTHERWISE)
        return await _objects(client, found)

    objects, missing = connected(kubeconfig, work)
    secret = [f"{obj['kind']} {obj['metadata']['name']}: {path}" for obj in objects for path in _secret_fields(obj)]
    click.echo(_comments(objects[-1], missing, secret) + yaml_output.dump_all(objects), nl=False)
    for text in missing:
        show_warning(f"not in the manifest: {text}")
    for text in secret:
        show_warning(f"the manifest contains a secret, keep it private: {text}")


async def _objects(client: HttpClient, found: Json) -> tuple[list[Json], list[str]]:
    """Return the objects to export, the Cluster last, and descriptions of those that are needed and not among them."""
    import msgspec

    from remuda.capi.inflection import plural
    from remuda.kube.client import Target
    from remuda.providers.controlplane.referenced_objects import CONFIG_MAP
    from remuda.providers.shared import names
    from remuda.provisioning.export import exported, needed
    from remuda.provisioning.types import CLUSTER

    wanted = needed(CLUSTER.decode(msgspec.json.encode(found)))
    objects: list[Json] = []
    missing = [str(one) for one in wanted.others]
    for one in (*wanted.configs, *wanted.config_maps):
        is_config = one.kind != CONFIG_MAP.name
        target = Target(names.CONFIG_API_VERSION, plural(one.kind.lower())) if is_config else CONFIG_MAP.target
        obj = await _get(client, target, one.key)
        if obj is None:
            missing.append(f"{one} (it does not exist, or you may not read it)")
        else:
            objects.append(exported(obj))
    missing += await _drivers(client, {one.kind for one in wanted.configs})
    return [*objects, exported(found)], missing


async def _drivers(client: HttpClient, kinds: set[str]) -> list[str]:
    """Return the drivers of Configs that another management plane would not have by itself."""
    from remuda.kube.objects import Key
    from remuda.providers.shared.types.machine import NODE_DRIVER

    found = []
    for kind in sorted(kinds):
        name = kind.removesuffix("Config").lower()
        driver = await _get(client, NODE_DRIVER.target, Key("", name))
        if driver is not None and not (driver.get("spec") or {}).get("builtin"):
            found.append(f"NodeDriver {name}, for {kind}")
    return found


async def _get(client: HttpClient, target: Target, key: Key) -> Json | None:
    import msgspec

    from remuda.kube.errors import Forbidden, NotFound

    try:
        found: Json = msgspec.json.decode(await client.get(target, *key))
    except (NotFound, Forbidden):
        return None
    return found


def _secret_fields(value: Any, path: str = "") -> Iterator[str]:
    """Yield the fields whose name says that their value is a secret."""
    from remuda.cli.redaction import is_secret

    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _secret_fields(one, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, one in value.items():
            at = f"{path}.{name}" if path else name
            if isinstance(one, str) and one and is_secret(name):
                yield at
            elif name != "metadata":
                yield from _secret_fields(one, at)


def _comments(cluster: Json, missing: Sequence[str], secret: Sequence[str]) -> str:
    metadata = cluster["metadata"]
    lines = [f"Cluster {metadata['namespace']}/{metadata['name']}, as `remuda export cluster` found it."]
    if missing:
        lines += ["Needed, and not in this file:", *(f"  {one}" for one in missing)]
    if secret:
        lines += ["These fields contain secrets, keep this file private:", *(f"  {one}" for one in secret)]
    return "".join(f"# {line}\n" for line in lines)
