"""`remuda get`: list objects of any kind as tables, JSON or YAML; and `get kubeconfig`, which creates one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from remuda.cli import get_kubeconfig, get_registration, shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import (
    JSON,
    NAME,
    TABLE,
    WIDE,
    YAML,
    fitting,
    no_headers_option,
    output_option,
    print_table,
    print_value,
    table_with_reasons,
    terminal_width,
)

if TYPE_CHECKING:
    from remuda.cli.cluster_table import Summaries
    from remuda.cli.kinds import Resource
    from remuda.cli.tables import Selection, Table
    from remuda.kube.http import HttpClient
    from remuda.provisioning.cluster_summary import ClusterSummary


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
command.add_command(get_registration.command)


@click.command(name="get", context_settings=HELP)
@click.argument("kind", metavar="KIND[/NAME]", shell_complete=shell_completion.kinds)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=shell_completion.names)
@click.option(
    "-n", "--namespace", default="", help="Only objects in this namespace.", shell_complete=shell_completion.namespaces
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects in all namespaces: the default.")
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Only objects with these labels, for example tier=web,!old."
)
@click.option("-w", "--watch", is_flag=True, help="Keep printing each change.")
@no_headers_option
@output_option(TABLE, WIDE, JSON, YAML, NAME)
@kubeconfig_option
def objects(
    kind: str,
    names: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    selector: str,
    watch: bool,
    no_headers: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """List objects of a KIND, by default in all namespaces: clusters, machines, nodedrivers, secrets, or any other kind
    that the server serves. KIND may be a plural, a singular, a short name or plural.group. With the kubeconfig of a
    cluster, list the objects in that cluster.

    `clusters` lists the declared ones (provisioning.cattle.io), then Cluster API clusters without a declaration, each
    with its status in one word: Creating, Ready, Updating, Degraded (something failed), Stuck (a person must act),
    Paused, Deleting. For kubeconfigs, see `remuda get kubeconfig --help`.

    \b
      remuda get clusters
      remuda get machines -l cluster.x-k8s.io/cluster-name=prairie -o wide
      remuda get cluster/prairie -o yaml
      remuda get machines -o name --no-headers
      remuda get kubeconfig prairie > prairie.kubeconfig
      remuda get nodes --kubeconfig prairie.kubeconfig
    """
    from remuda.cli.kinds import named_objects

    asked = named_objects((kind, *names))
    if selector and any(words for _, words in asked):
        raise click.UsageError("names and --selector exclude each other")

    if namespace and all_namespaces:
        raise click.UsageError("-n and -A exclude each other")

    if watch and len(asked) > 1:
        raise click.UsageError("--watch follows objects of one kind")

    async def show(client: HttpClient) -> None:
        from remuda.cli.kinds import discover

        kinds = await discover(client)
        found: list[Any] = []
        for word, own in asked:
            meanings, wanted = kinds.meanings(word), _Wanted(client, namespace, own, selector)
            if output in (TABLE, WIDE):
                view = _View(wide=output == WIDE, headers=not no_headers)
                if _is_summarized(word, meanings[0]):
                    await _show_clusters(wanted, meanings, view, watch=watch)
                else:
                    await _show_tables(wanted, meanings, view, watch=watch)
            elif watch:
                await _follow_whole(wanted, meanings[0], output)
            else:
                found += await wanted.whole(meanings)
        if output not in (TABLE, WIDE):
            _print_whole(found, output, single=sum(len(own) for _, own in asked) == 1)

    connected(kubeconfig, show)


class _View(NamedTuple):
    wide: bool
    headers: bool


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
        await self.check_names({key.name for key in known}, meanings)
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
        await self.check_names({key.name for key in found}, meanings)
        return list(found.values())

    async def check_names(self, found: set[str], meanings: list[Resource]) -> None:
        """Raise ClickException for names that no object has, with names that are similar."""
        missing = [name for name in self.names if name not in found]
        if missing:
            from remuda.cli.kinds import names_of
            from remuda.kube.similar_names import did_you_mean, similar

            where = f" in namespace {self.namespace}" if self.namespace else ""
            known = [name for one in meanings for name in await names_of(self.client, one, self.namespace)]
            raise click.ClickException(
                f"{meanings[0].full_name} {', '.join(missing)} not found{where}"
                f"{did_you_mean(similar(missing[0], known)) or '.'} `remuda get {meanings[0].target.plural}` lists the "
                "existing ones"
            )


# ---- clusters --------------------------------------------------------------------------------------------------------


def _is_summarized(word: str, meaning: Resource) -> bool:
    """Return whether the kind is shown as summaries: clusters as users call them, and the declared ones."""
    from remuda.cli.kinds import CLUSTERS

    return meaning.is_cluster and (word.lower() in ("cluster", "clusters") or meaning.target.group == CLUSTERS[0])


async def _show_clusters(wanted: _Wanted, meanings: list[Resource], view: _View, *, watch: bool) -> None:
    from remuda.cli import cluster_table
    from remuda.cli.kinds import CLUSTERS

    found = await cluster_table.load(wanted.client, wanted.namespace, wanted.labels, wanted.names)
    if meanings[-1].target.group == CLUSTERS[0]:
        found = cluster_table.Summaries(found.declared, ())
    every = [*found.declared, *found.others]
    await wanted.check_names({one.name for one in every}, meanings)
    if not every:
        where = f" in namespace {wanted.namespace}" if wanted.namespace else ""
        click.echo(f"no clusters found{where}; to create one: remuda create cluster", err=True)
    # Most people keep all clusters in one namespace: then its column would only take the room of the reason.
    namespaces = not wanted.namespace and (view.wide or len({one.namespace for one in every}) > 1)
    _print_clusters(found.declared, view, namespaces)
    if found.others:
        gap = "\n" if found.declared else ""
        click.echo(f"{gap}in {meanings[-1].target.group}, without a declaration:", err=True)
        _print_clusters(found.others, view, namespaces)
    if watch:
        await _follow_clusters(wanted, found, view, namespaces)


def _print_clusters(found: Sequence[ClusterSummary], view: _View, namespaces: bool) -> None:
    from remuda.cli import cluster_table

    if not found:
        return
    heads = cluster_table.heads(wide=view.wide, namespaces=namespaces)
    rows = [cluster_table.row(one, wide=view.wide, namespaces=namespaces) for one in found]
    width = None if view.wide else terminal_width()
    if width is not None:
        shown = fitting(heads[:-1], [cells[:-1] for cells in rows], width)
        heads = [*(heads[at] for at in shown), heads[-1]]
        rows = [[*(cells[at] for at in shown), cells[-1]] for cells in rows]
    texts = table_with_reasons(heads, rows, width)
    for text, status in zip(texts, (None, *(one.status for one in found)), strict=True):
        if status is not None:
            click.echo(text.replace(status, click.style(status, fg=cluster_table.COLOURS[status]), 1))
        elif view.headers:
            click.echo(text)


async def _follow_clusters(wanted: _Wanted, found: Summaries, view: _View, namespaces: bool) -> None:
    from remuda.cli import cluster_table

    stream = cluster_table.changes(wanted.client, wanted.namespace, wanted.labels, wanted.names, found)
    async with aclosing(stream) as changes:
        async for one in changes:
            _print_clusters([one], view._replace(headers=False), namespaces)


# ---- tables ----------------------------------------------------------------------------------------------------------


async def _show_tables(wanted: _Wanted, meanings: list[Resource], view: _View, *, watch: bool) -> None:
    from remuda.cli import tables

    found = await wanted.tables(meanings)
    if not any(table.rows for _, table in found):
        where = f" in namespace {wanted.namespace}" if wanted.namespace else ""
        click.echo(f"no {meanings[0].plural_name} found{where}", err=True)
    for resource, table in found:
        if not table.rows:
            continue
        namespaces = resource.namespaced and not wanted.namespace
        heads, rows = tables.text(table.column_definitions or (), table.rows, wide=view.wide, namespaces=namespaces)
        _print_rows(heads, rows, view)
    if watch:
        await _follow_rows(wanted, *found[0], wide=view.wide)


def _print_rows(heads: list[str], rows: list[list[str]], view: _View) -> None:
    width = None if view.wide else terminal_width()
    if width is not None:
        shown = fitting(heads, rows, width)
        left_out = len(heads) - len(shown)
        print_table([heads[at] for at in shown], [[row[at] for at in shown] for row in rows], headers=view.headers)
        if left_out:
            more = f"{left_out} more column{'s' if left_out > 1 else ''} with -o wide"
            click.echo(click.style(more, dim=True), err=True)
    else:
        print_table(heads, rows, whole=True, headers=view.headers)


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
