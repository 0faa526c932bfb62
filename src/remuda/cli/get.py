"""`remuda get`: list objects of any kind as tables, JSON or YAML; and `get kubeconfig`, which creates one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import get_kubeconfig, shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import (
    JSON,
    NAME,
    TABLE,
    WIDE,
    YAML,
    fitting,
    output_option,
    print_table,
    print_value,
    terminal_width,
)

if TYPE_CHECKING:
    from remuda.cli.kinds import Resource
    from remuda.cli.tables import Selection, Table
    from remuda.kube.http import HttpClient


class Get(click.Group):
    """Group in which `kubeconfig` is a command with its own options, and any other word is a KIND argument."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if self.meant(args) is self:
            return super().make_context(info_name, args, parent, **extra)
        return objects.make_context(info_name, args, parent, **extra)

    def meant(self, args: list[str]) -> click.Command:
        return self if args and args[0] in self.commands else objects


@click.group(name="get", cls=Get, context_settings=HELP)
def command() -> None:
    """List objects, or get a kubeconfig."""


command.add_command(get_kubeconfig.command)


@click.command(name="get", context_settings=HELP)
@click.argument("kind", shell_complete=shell_completion.kinds)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=shell_completion.names)
@click.option(
    "-n", "--namespace", default="", help="Only objects in this namespace.", shell_complete=shell_completion.namespaces
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects in all namespaces: the default.")
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Only objects with these labels, for example tier=web,!old."
)
@click.option("-w", "--watch", is_flag=True, help="Keep printing each change.")
@output_option(TABLE, WIDE, JSON, YAML, NAME)
@kubeconfig_option
def objects(
    kind: str,
    names: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    selector: str,
    watch: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """List objects of a KIND, by default in all namespaces: clusters, machines, nodedrivers, secrets, or any other kind
    that the server serves. KIND may be a plural, a singular, a short name or plural.group. With the kubeconfig of a
    cluster, list the objects in that cluster.

    `clusters` lists the declared ones (provisioning.cattle.io), then Cluster API clusters without a declaration. For
    kubeconfigs, see `remuda get kubeconfig --help`.

    \b
      remuda get clusters
      remuda get machines -l cluster.x-k8s.io/cluster-name=prairie -o wide
      remuda get cluster prairie -o yaml
      remuda get kubeconfig prairie > prairie.kubeconfig
      remuda get nodes --kubeconfig prairie.kubeconfig
    """
    if names and selector:
        raise click.UsageError("names and --selector exclude each other")

    if namespace and all_namespaces:
        raise click.UsageError("-n and -A exclude each other")

    async def show(client: HttpClient) -> None:
        from remuda.cli.kinds import discover

        meanings = (await discover(client)).meanings(kind)
        wanted = _Wanted(client, namespace, names, selector)
        if output in (TABLE, WIDE):
            await _show_tables(wanted, meanings, watch=watch, wide=output == WIDE)
        elif watch:
            await _follow_whole(wanted, meanings[0], output)
        else:
            _print_whole(await wanted.whole(meanings), output, single=len(names) == 1)

    connected(kubeconfig, show)


class _Wanted:
    """Objects that the command line asks for."""

    def __init__(self, client: HttpClient, namespace: str, names: tuple[str, ...], labels: str) -> None:
        self.client = client
        self.names = names
        self.namespace = namespace
        self.labels = labels

    def selection(self, resource: Resource, name: str = "") -> Selection:
        from remuda.cli.tables import Selection

        fields = f"metadata.name={name}" if name else ""
        return Selection(self.namespace if resource.namespaced else "", self.labels, fields)

    async def tables(self, meanings: list[Resource]) -> list[tuple[Resource, Table]]:
        """Return a table for each meaning of the kind, without objects that an earlier table has.

        Raises ClickException for a name that no object has.
        """
        from remuda.cli.tables import listed

        known: set[Any] = set()
        found = []
        for resource in meanings:
            asked = [listed(self.client, resource, self.selection(resource, name)) for name in self.names or ("",)]
            pages = await asyncio.gather(*asked)
            table = pages[0]
            table.rows = [row for page in pages for row in page.rows or () if row.object.key not in known]
            known |= {row.object.key for row in table.rows}
            found.append((resource, table))
        self._check_names({key.name for key in known}, meanings)
        return found

    async def whole(self, meanings: list[Resource]) -> list[Any]:
        import msgspec

        from remuda.kube.client import list_all
        from remuda.kube.objects import Key

        found: dict[Key, Any] = {}
        for resource in meanings:
            for name in self.names or ("",):
                chosen = self.selection(resource, name)
                listing = await list_all(
                    self.client,
                    resource.target,
                    chosen.namespace,
                    label_selector=chosen.labels,
                    field_selector=chosen.fields,
                )
                for value in listing.items:
                    obj = msgspec.json.decode(value)
                    metadata = obj["metadata"]
                    found.setdefault(Key(metadata.get("namespace", ""), metadata["name"]), obj)
        self._check_names({key.name for key in found}, meanings)
        return list(found.values())

    def _check_names(self, found: set[str], meanings: list[Resource]) -> None:
        missing = [name for name in self.names if name not in found]
        if missing:
            where = f" in namespace {self.namespace}" if self.namespace else ""
            raise click.ClickException(
                f"{meanings[0].full_name} {', '.join(missing)} not found{where}. `remuda get "
                f"{meanings[0].target.plural}` lists the existing ones"
            )


# ---- tables ----------------------------------------------------------------------------------------------------------


async def _show_tables(wanted: _Wanted, meanings: list[Resource], *, watch: bool, wide: bool) -> None:
    from remuda.cli import tables

    found = await wanted.tables(meanings)
    if not any(table.rows for _, table in found):
        where = f" in namespace {wanted.namespace}" if wanted.namespace else ""
        click.echo(f"no {meanings[0].plural_name} found{where}", err=True)
    first = True
    for resource, table in found:
        if not table.rows:
            continue
        if resource is not meanings[0]:
            click.echo(f"{'' if first else chr(10)}in {resource.target.group}, without a declaration:", err=True)
        namespaces = resource.namespaced and not wanted.namespace
        heads, rows = tables.text(table.column_definitions or (), table.rows, wide=wide, namespaces=namespaces)
        _print_rows(heads, rows, wide)
        first = False
    if watch:
        await _follow_rows(wanted, *found[0], wide=wide)


def _print_rows(heads: list[str], rows: list[list[str]], wide: bool) -> None:
    width = None if wide else terminal_width()
    if width is not None:
        shown = fitting(heads, rows, width)
        left_out = len(heads) - len(shown)
        print_table([heads[at] for at in shown], [[row[at] for at in shown] for row in rows])
        if left_out:
            more = f"{left_out} more column{'s' if left_out > 1 else ''} with -o wide"
            click.echo(click.style(more, dim=True), err=True)
    else:
        print_table(heads, rows, whole=True)


async def _follow_rows(wanted: _Wanted, resource: Resource, table: Table, *, wide: bool) -> None:
    """Print changed rows beneath the table; restart from a new list when the server has expired the revision."""
    from remuda.cli import tables
    from remuda.kube.errors import Gone

    columns, since = table.column_definitions or [], table.metadata.resource_version
    namespaces = resource.namespaced and not wanted.namespace
    heads, rows = tables.text(columns, table.rows or (), wide=wide, namespaces=namespaces)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    room = None if wide else terminal_width()
    shown = range(len(heads)) if room is None else fitting(heads, rows, room)
    selection = wanted.selection(resource, wanted.names[0] if len(wanted.names) == 1 else "")
    while True:
        try:
            async with aclosing(tables.changes(wanted.client, resource, selection, since)) as changes:
                async for kind, change in changes:
                    for row in change.rows or ():
                        since = row.object.metadata.resource_version or since
                        if kind == "BOOKMARK" or (wanted.names and row.object.metadata.name not in wanted.names):
                            continue
                        _, (cells,) = tables.text(columns, [row], wide=wide, namespaces=namespaces)
                        click.echo("   ".join(cells[at].ljust(widths[at]) for at in shown).rstrip())
        except Gone:
            since = (await tables.listed(wanted.client, resource, selection)).metadata.resource_version


# ---- whole objects ---------------------------------------------------------------------------------------------------


def _print_whole(found: list[Any], output: str, *, single: bool) -> None:
    if output == NAME:
        for obj in found:
            click.echo(full_name(obj))
        return
    for obj in found:
        obj["metadata"].pop("managedFields", None)
    print_value(
        found[0] if single and len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": found}, output
    )


def full_name(obj: Any) -> str:
    """Return the name as kubectl prints it: cluster.provisioning.cattle.io/prairie."""
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return f"{str(obj['kind']).lower()}{'.' if group else ''}{group}/{obj['metadata']['name']}"


async def _follow_whole(wanted: _Wanted, resource: Resource, output: str) -> None:
    """Print each object, and again whenever it changes, as a stream of documents."""
    import msgspec

    selection = wanted.selection(resource, wanted.names[0] if len(wanted.names) == 1 else "")
    watch = wanted.client.watch(
        resource.target, selection.namespace, label_selector=selection.labels, field_selector=selection.fields
    )
    async with aclosing(watch) as changes:
        async for change in changes:
            obj = msgspec.json.decode(change.value)
            if change.type != "BOOKMARK" and (not wanted.names or obj["metadata"]["name"] in wanted.names):
                if output == YAML:
                    click.echo("---")
                _print_whole([obj], output, single=True)
