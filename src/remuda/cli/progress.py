"""Waiting for a cluster, so that whoever waits sees what for.

On a terminal the cluster's tree is drawn again in place whenever it changes, and the time beside it; in a pipe each
change of what holds it up is a line. Progress goes to standard error. Nothing is asked while nothing changes: watches
say when to look. A management plane that is away for a while is waited for, too. Ctrl-C ends the waiting alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from remuda.cli import exit_codes
from remuda.cli.connection import connected
from remuda.cli.output import wants_no_colour
from remuda.cli.text_wrap import errors_width, say, wrapped

if TYPE_CHECKING:
    from remuda.kube.client import Client, Target
    from remuda.kube.http import HttpClient
    from remuda.provisioning.tree import Branch

Wanted = Literal["ready", "gone", ""]
READY: Wanted = "ready"
GONE: Wanted = "gone"
NEVER: Wanted = ""  # it is only looked at

TIMEOUT = "20m"
_BETWEEN_LOOKS = 0.5
_TICK = 1.0
_AGAIN = 1.0  # after a watch has ended or failed
_UNTOLD = 10.0  # what happened between two watches is seen then


def wait_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--wait` and `--timeout` (in seconds)."""
    command = timeout_option(command)
    return click.option("--wait", is_flag=True, help="Wait until it is done, and show how it gets on.")(command)


def timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--timeout", metavar="TIME", default=TIMEOUT, show_default=True, callback=_seconds, help="How long to wait."
    )(command)


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    from remuda.kube import durations

    try:
        found = durations.parse(value)
    except durations.BadDuration as error:
        raise click.BadParameter(f"{value!r} {error}") from None
    if found <= 0:
        raise click.BadParameter(f"{value!r} is over already")
    return found


def wait(kubeconfig: Path | None, namespace: str, name: str, *, timeout: float, wanted: Wanted = READY) -> None:
    """For commands: returns when it has come; ends the command with IN_VAIN, or INTERRUPTED, otherwise."""

    async def work(client: HttpClient) -> bool:
        return await until(client, namespace, name, seconds=timeout, wanted=wanted)

    try:
        came = connected(kubeconfig, work)
    except KeyboardInterrupt:
        say(f"\nnot waited for any longer; it goes on by itself. Look again:\n  {_again(namespace, name)}")
        raise SystemExit(exit_codes.INTERRUPTED) from None
    if not came:
        raise SystemExit(exit_codes.IN_VAIN)


def _again(namespace: str, name: str) -> str:
    return f"remuda describe cluster {name} -n {namespace} --watch"


async def until(client: Client, namespace: str, name: str, *, seconds: float | None, wanted: Wanted = READY) -> bool:
    """Wait for the wanted state and show progress; return whether it came within so many seconds (None: no timeout)."""
    from remuda.kube.errors import Unreachable

    timer = _Timer(seconds)
    display = _display(f"Cluster {namespace}/{name}", wanted, seconds)
    root: Branch | None = None
    try:
        async with _changes(client, namespace, name) as changed:
            while True:
                changed.clear()
                try:
                    root = await _look(client, namespace, name)
                except Unreachable as error:
                    display.trouble(str(error), timer.elapsed)
                    changed.set()
                else:
                    if _came(root, wanted):
                        display.done(root, timer.elapsed)
                        return True
                    display.show(root, timer.elapsed)
                if not await _next_look(changed, timer, display):
                    display.in_vain(root, timer.elapsed)
                    return False
    finally:
        display.close()


async def _look(client: Client, namespace: str, name: str) -> Branch | None:
    """None: there is no such cluster."""
    from remuda.provisioning import tree_loader

    try:
        return await tree_loader.look(client, namespace, name)
    except tree_loader.NoSuchCluster:
        return None


def _came(root: Branch | None, wanted: Wanted) -> bool:
    return root is None if wanted in (GONE, NEVER) else root is not None and root.well


async def _next_look(changed: asyncio.Event, timer: _Timer, display: Lines) -> bool:
    """Waits until there may be something new to see; False: the time is over."""
    await asyncio.sleep(min(_BETWEEN_LOOKS, timer.left))
    again = timer.elapsed + _UNTOLD
    while timer.left > 0:
        if timer.elapsed > again:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), min(_TICK, timer.left))
            return True
        display.tick(timer.elapsed)
    return False


class _Timer:
    def __init__(self, seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._seconds = seconds

    @property
    def elapsed(self) -> float:
        return self._loop.time() - self._began

    @property
    def left(self) -> float:
        return float("inf") if self._seconds is None else max(self._seconds - self.elapsed, 0.0)


# ---- when to look ----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _changes(client: Client, namespace: str, name: str) -> AsyncIterator[asyncio.Event]:
    """Set whenever something of the cluster has changed. What is not watched, servers and hosts, makes itself felt in
    the conditions of its Machine."""
    from remuda.capi import names as capi_names
    from remuda.capi.types import CLUSTER as CAPI_CLUSTER
    from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
    from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
    from remuda.provisioning.types import CLUSTER

    changed = asyncio.Event()
    label, field = f"{capi_names.CLUSTER_NAME}={capi_names.label_value(name)}", f"metadata.name={name}"
    watches = [
        *(
            _watch(client, kind.target, namespace, "", field, changed)
            for kind in (CLUSTER, CAPI_CLUSTER, RKE_CONTROL_PLANE)
        ),
        *(_watch(client, kind.target, namespace, label, "", changed) for kind in (MACHINE, MACHINE_DEPLOYMENT)),
    ]
    tasks = [asyncio.create_task(watch) for watch in watches]
    try:
        yield changed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(
    client: Client, target: Target, namespace: str, label: str, field: str, changed: asyncio.Event
) -> None:
    from remuda.kube.errors import StatusError

    while True:
        with contextlib.suppress(StatusError):
            watch = client.watch(target, namespace, label_selector=label, field_selector=field)
            async with contextlib.aclosing(watch) as changes:
                async for change in changes:
                    if change.type != "BOOKMARK":
                        changed.set()
        await asyncio.sleep(_AGAIN)
        changed.set()


# ---- what is shown ---------------------------------------------------------------------------------------------------


def _display(what: str, wanted: Wanted, timeout: float | None) -> Lines:
    drawn = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Frames(what, wanted, timeout) if drawn else Lines(what, wanted, timeout)


class Lines:
    """Progress as lines, for logs and pipes: one line for each change of what delays the cluster."""

    def __init__(self, what: str, wanted: Wanted, timeout: float | None) -> None:
        self.what = what
        self.wanted = wanted
        self.timeout = timeout
        self._said = ""

    def show(self, root: Branch | None, elapsed: float) -> None:
        self._say(_holds_up(root), elapsed)

    def trouble(self, text: str, elapsed: float) -> None:
        self._say(text, elapsed)

    def tick(self, elapsed: float) -> None:
        pass

    def done(self, root: Branch | None, elapsed: float) -> None:
        from remuda.cli.tree_text import span

        click.echo(f"{self.what} is {self.wanted or GONE} after {span(elapsed)}", err=True)

    def in_vain(self, root: Branch | None, elapsed: float) -> None:
        from remuda.cli.tree_text import span

        say(f"{self.what} is not {self.wanted} after {span(elapsed)}; it goes on by itself")
        if root is not None:
            from remuda.cli.blocker_text import chain_lines

            click.echo("\n".join(chain_lines(root, width=errors_width())), err=True)

    def close(self) -> None:
        pass

    def _say(self, text: str, elapsed: float) -> None:
        from remuda.cli.tree_text import span

        if text != self._said:
            self._said = text
            click.echo(f"{span(elapsed):>6}  {text}", err=True)


class Frames(Lines):
    """On a terminal: the tree, drawn again in place."""

    def __init__(self, what: str, wanted: Wanted, timeout: float | None) -> None:
        super().__init__(what, wanted, timeout)
        self._root: Branch | None = None
        self._trouble = ""
        self._drawn: list[str] = []
        _steer("\x1b[?25l")

    def show(self, root: Branch | None, elapsed: float) -> None:
        self._root, self._trouble = root, ""
        self._draw(elapsed)

    def trouble(self, text: str, elapsed: float) -> None:
        self._trouble = text
        self._draw(elapsed)

    def tick(self, elapsed: float) -> None:
        self._draw(elapsed)

    def done(self, root: Branch | None, elapsed: float) -> None:
        self._root, self._trouble = root, ""
        self._draw(elapsed, heading=False)
        super().done(root, elapsed)

    def in_vain(self, root: Branch | None, elapsed: float) -> None:
        self._put([])
        super().in_vain(root, elapsed)

    def close(self) -> None:
        _steer("\x1b[?25h")

    def _draw(self, elapsed: float, *, heading: bool = True) -> None:
        from remuda.cli import tree_text

        width, height = shutil.get_terminal_size()
        room = max(height - 3, 3)
        ahead = []
        if heading:
            end = f" of {tree_text.span(self.timeout)}" if self.timeout is not None else ""
            aim = f"waiting until {self.what} is {self.wanted}" if self.wanted else f"{self.what}, Ctrl-C ends this"
            text = f"{aim}, {tree_text.span(elapsed)}{end}"
            ahead = [click.style(tree_text.cut(text, width), dim=True)]
        if self._trouble:
            ahead += wrapped(self._trouble, width, "  ")[:3]
        body = [] if self._root is None else tree_text.lines(self._root, width=width, height=room - len(ahead))
        self._put(ahead + body)

    def _put(self, frame: list[str]) -> None:
        """In one write, so that nothing flickers. A terminal that has become narrower has broken the old lines."""
        if wants_no_colour():
            frame = [click.unstyle(line) for line in frame]
        if frame == self._drawn:
            return
        width = max(shutil.get_terminal_size().columns, 1)
        up = sum(max(-(-len(click.unstyle(line)) // width), 1) for line in self._drawn)
        back = f"\x1b[{up}A" if up else ""
        _steer(back + "\r" + "".join(f"{line}\x1b[K\n" for line in frame) + "\x1b[J")
        self._drawn = frame


def _steer(text: str) -> None:
    """To the terminal as it is: without colours it is steered all the same."""
    click.echo(text, nl=False, err=True, color=True)


def _holds_up(root: Branch | None) -> str:
    from remuda.provisioning import blocker

    if root is None:
        return "it is not there"
    leaf = next(reversed(blocker.blocking(root)), root)
    said = leaf.judgement
    first = next(iter(said.message.splitlines()), said.reason)
    return f"{leaf}: {said.state}{f': {first}' if first else ''}"
