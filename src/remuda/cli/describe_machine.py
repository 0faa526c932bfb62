"""`remuda describe machine`: one machine with its server, its Node and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value, terminal_width

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.tree import Branch

Json = dict[str, Any]

_ROLES = {
    "rke.cattle.io/etcd-role": "etcd",
    "rke.cattle.io/control-plane-role": "control plane",
    "rke.cattle.io/worker-role": "worker",
}


@click.command(name="machine", context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.machines)
@namespace_option("machine")
@output_option(TABLE, JSON, YAML)
@kubeconfig_option
def command(name: str, namespace: str, output: str, kubeconfig: Path | None) -> None:
    """Show a machine: its pool, Node, addresses and version, its objects as a tree, and what happens next.

    \b
      remuda describe machine prairie-workers-7x2kq-abcde
      remuda describe machine prairie-workers-7x2kq-abcde -o yaml
    """
    from remuda.cli.text_wrap import wrapped
    from remuda.cli.tree_text import lines
    from remuda.provisioning import blocker

    async def look(client: HttpClient) -> tuple[Json, Branch | None]:
        machine = await find_machine(client, namespace, name)
        return machine, await _branch(client, machine)

    machine, branch = connected(kubeconfig, look)
    facts = described(machine)
    chain = [] if branch is None else blocker.blocking(branch)
    then = blocker.then(chain) if chain else ""
    if output != TABLE:
        print_value({**facts, "tree": branch, "next": then}, output)
        return
    width = max(len(head) for head in facts) + 2
    for head, value in facts.items():
        click.echo(f"{head + ':':{width}}{value or '-'}")
    if branch is not None:
        click.echo()
        click.echo("\n".join(lines(branch, width=terminal_width())))
    if then:
        click.echo("\n".join(wrapped(f"next: {then}", terminal_width())))


def described(machine: Json) -> dict[str, str]:
    """Return the facts about a Machine, by their titles. Pure."""
    metadata, spec, status = machine["metadata"], machine.get("spec") or {}, machine.get("status") or {}
    labels = metadata.get("labels") or {}
    server = spec.get("infrastructureRef") or {}
    node = status.get("nodeInfo") or {}
    addresses = [f"{one.get('address')} ({one.get('type')})" for one in status.get("addresses") or ()]
    return {
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "Cluster": str(spec.get("clusterName") or ""),
        "Pool": str(labels.get("rke.cattle.io/rke-machine-pool-name") or ""),
        "Roles": ", ".join(role for label, role in _ROLES.items() if labels.get(label) == "true"),
        "Server": " ".join(str(server.get(key) or "") for key in ("kind", "name")).strip(),
        "Provider ID": str(spec.get("providerID") or ""),
        "Addresses": ", ".join(addresses),
        "Node": str((status.get("nodeRef") or {}).get("name") or ""),
        "Version": str(node.get("kubeletVersion") or spec.get("version") or ""),
        "OS": str(node.get("osImage") or ""),
        "Phase": str(status.get("phase") or ""),
        "Created": str(metadata.get("creationTimestamp") or ""),
    }


async def find_machine(client: HttpClient, namespace: str, name: str) -> Json:
    """Return the Machine of that name, or the Machine whose server has it. Raises ClickException."""
    import msgspec

    from remuda.capi.types import MACHINE
    from remuda.kube.client import list_all
    from remuda.kube.similar_names import did_you_mean, similar

    listing = await list_all(client, MACHINE.target, namespace)
    known: list[Json] = [msgspec.json.decode(value) for value in listing.items]
    found = [one for one in known if one["metadata"]["name"] == name] or [one for one in known if _server(one) == name]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(sorted(one["metadata"]["namespace"] for one in found))
        raise click.ClickException(f"several machines are called {name}, in namespaces {places}: choose one with -n")
    where = f" in namespace {namespace}" if namespace else ""
    close = did_you_mean(similar(name, [one["metadata"]["name"] for one in known])) or "."
    raise click.ClickException(f"machine {name} not found{where}{close} `remuda get machines` lists the existing ones")


def _server(machine: Mapping[str, Any]) -> str:
    return str(((machine.get("spec") or {}).get("infrastructureRef") or {}).get("name") or "")


async def _branch(client: HttpClient, machine: Json) -> Branch | None:
    """Return the machine in the tree of its cluster; None if the cluster does not exist any more."""
    from remuda.provisioning import tree, tree_loader

    metadata, cluster = machine["metadata"], str((machine.get("spec") or {}).get("clusterName") or "")
    try:
        root = await tree_loader.look(client, metadata["namespace"], cluster)
    except tree_loader.NoSuchCluster:
        return None
    own = (one for _, one in tree.walk(root) if (one.kind, one.name) == ("Machine", metadata["name"]))
    return next(own, None)
