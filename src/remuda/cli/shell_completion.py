"""Shell completion with names that the server knows, for `shell_complete` of arguments and options.

A user who pressed Tab must not wait long or see errors: errors are never shown, and after a second completion gives up
without an answer. Nothing is imported before a shell asks for completions.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from remuda.kube.http import HttpClient

SECONDS = 1.0
_MOST = 500

Answer = Callable[[click.Context, click.Parameter, str], "list[str | CompletionItem]"]


def clusters(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    return _query(ctx, incomplete, lambda client: _names(client, "clusters", str(ctx.params.get("namespace") or "")))


def machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    return _query(ctx, incomplete, lambda client: _names(client, "machines", str(ctx.params.get("namespace") or "")))


def subjects(*types: str) -> Answer:
    """Return the completion of `TYPE NAME`, `TYPE/NAME`, or NAME of the first type."""

    def answer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
        given = ctx.params.get(param.name or "") or ()
        place = str(ctx.params.get("namespace") or "")
        kind, slash, start = incomplete.partition("/")
        if slash and kind in types:
            found = _query(ctx, start, lambda client: _names(client, f"{kind}s", place))
            return [f"{kind}/{name}" for name in found]
        if given and given[0] in types:
            return _query(ctx, incomplete, lambda client: _names(client, f"{given[0]}s", place))
        words: list[str | CompletionItem] = [type for type in types if type.startswith(incomplete)]
        return [*words, *_query(ctx, incomplete, lambda client: _names(client, f"{types[0]}s", place))]

    return answer


def namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    return _query(ctx, incomplete, lambda client: _names(client, "namespaces", ""))


def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    """Complete the names of objects of the KIND that was given before."""
    kind, place = str(ctx.params.get("kind") or ""), str(ctx.params.get("namespace") or "")
    return _query(ctx, incomplete, lambda client: _names(client, kind, place)) if kind else []


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    own = [name for name in ("kubeconfig", "registration") if ctx.info_name == "get" and name.startswith(incomplete)]
    return [*own, *_query(ctx, incomplete, _kinds)]


def drivers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    from remuda.providers.shared import drivers

    return [name for name in drivers.names() if name.startswith(incomplete)]


def versions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    """Complete versions that the server has artefacts of; of the distribution that was given, if one was."""
    distribution = str(ctx.params.get("distribution") or "")

    async def ask(client: HttpClient) -> list[str]:
        from remuda.cli import choices

        found = await choices.versions(client)
        return [one for one in reversed(found) if not distribution or f"+{distribution}" in one]

    return _query(ctx, incomplete, ask)


def driver_options(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str | CompletionItem]:
    """Complete KEY= of the options of the driver that was given. Options that were set before are left out."""
    from click.shell_completion import CompletionItem

    from remuda.cli import choices
    from remuda.providers.machine.options import of_driver
    from remuda.providers.shared import drivers

    given = {str(one).partition("=")[0] for one in ctx.params.get("options") or ()}
    with _silence():
        try:
            name = str(ctx.params.get("driver") or "") or choices.driver(ctx.params.get("kubeconfig"))
            known = of_driver(drivers.find(name)).properties(defaults=False)
        except (drivers.NoSuchDriver, click.ClickException):
            return []
    return [
        CompletionItem(f"{key}=", help=str(schema.get("description") or ""))
        for key, schema in known.items()
        if key not in given and f"{key}=".startswith(incomplete)
    ]


def _query(
    ctx: click.Context, incomplete: str, ask: Callable[[HttpClient], Awaitable[list[str]]]
) -> list[str | CompletionItem]:
    kubeconfig = ctx.params.get("kubeconfig")
    found: list[str] = []
    with _silence():
        try:
            from remuda.cli.connection import connected

            _warm_up()
            with _at_most(SECONDS):
                found = connected(Path(kubeconfig) if kubeconfig else None, ask, warn=lambda text: None)
        except Exception:  # completion has no place to show errors
            found = []
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]


def _warm_up() -> None:
    """Import before the timer starts: the second is meant for the server, not for our start-up."""
    import remuda.cli.kinds
    import remuda.kube.http
    import remuda.kube.kubeconfig  # noqa: F401


async def _names(client: HttpClient, kind: str, namespace: str) -> list[str]:
    from remuda.cli.kinds import discover, names_of

    meanings = (await discover(client)).meanings(kind)
    return sorted([name for one in meanings for name in await names_of(client, one, namespace, _MOST)])


async def _kinds(client: HttpClient) -> list[str]:
    from remuda.cli.kinds import discover

    resources = (await discover(client)).resources
    return sorted({one.target.plural for one in resources if "list" in one.verbs and "/" not in one.target.plural})


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Exit the process silently after so many seconds: a thread that resolves a name cannot be cancelled."""

    def give_up(*_: object) -> None:
        os._exit(0)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard standard error, also that of credential plugins, which share ours."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
