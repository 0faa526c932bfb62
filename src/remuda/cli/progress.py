"""Wait for a cluster and show what it is waiting for.

On a terminal, the cluster's tree and the elapsed time are redrawn in place whenever something changes; in a pipe, each
change of the blocking object is a line. Progress goes to standard error. Watches trigger each new look, so an unchanged
cluster costs no requests. An unreachable management plane is retried. Ctrl-C only stops the waiting.

Waiting ends early when the cluster cannot continue before a user acts (`blocker.permanent_failure`). The failure must
last for a few seconds: conditions of objects that a change replaces are true until the controllers have seen it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from remuda.cli import exit_codes
from remuda.cli.connection import connected
from remuda.cli.output import wants_no_colour
from remuda.cli.text_wrap import errors_width, print_note, terminal_size, wrapped

if TYPE_CHECKING:
    from remuda.kube.client import Client, Target
    from remuda.kube.http import HttpClient
    from remuda.provisioning.tree import Branch

Wanted = Literal["ready", "deleted", ""]
READY: Wanted = "ready"
GONE: Wanted = "deleted"
NEVER: Wanted = ""  # only watch

TIMEOUT = "20m"
_LEAST_INTERVAL = 0.5  # seconds between two reads of the tree
_TICK = 1.0
_RETRY_SECONDS = 1.0  # after a watch has ended or failed
_MOST_INTERVAL = 10.0  # read again even without an event: one between two watches is missed
_SURE_SECONDS = 5.0  # a permanent failure that lasts so long is no remainder of an earlier state


def wait_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--wait` and `--timeout` (in seconds)."""
    command = timeout_option(command)
    return click.option("--wait", is_flag=True, help="Wait until the cluster is ready, and show progress.")(command)


def timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--timeout", metavar="TIME", default=TIMEOUT, show_default=True, callback=_seconds, help="Maximum time to wait."
    )(command)


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    from remuda.kube import clock

    try:
        found = clock.parse_duration(value)
    except clock.BadDuration as error:
        raise click.BadParameter(f"{value!r} {error}") from None
    if found <= 0:
        raise click.BadParameter(f"{value!r} must be more than zero")
    return found


class PermanentFailure(Exception):
    """The cluster does not reach the state before a user acts; the cause is already shown."""


def wait(kubeconfig: Path | None, namespace: str, name: str, *, timeout: float, wanted: Wanted = READY) -> None:
    """Return when the wanted state is reached; exit with NO on a permanent failure, with IN_VAIN on a timeout, with
    INTERRUPTED on Ctrl-C."""

    async def work(client: HttpClient) -> bool:
        return await until(client, namespace, name, seconds=timeout, wanted=wanted)

    try:
        reached = connected(kubeconfig, work)
    except PermanentFailure:
        raise SystemExit(exit_codes.NO) from None
    except KeyboardInterrupt:
        print_note(f"\nstopped waiting; the controllers continue. To follow them:\n  {watch_command(namespace, name)}")
        raise SystemExit(exit_codes.INTERRUPTED) from None
    if not reached:
        raise SystemExit(exit_codes.IN_VAIN)


def watch_command(namespace: str, name: str) -> str:
    """Return the command that shows the progress of a cluster."""
    return f"remuda describe cluster {name} -n {namespace} --watch"


async def until(client: Client, namespace: str, name: str, *, seconds: float | None, wanted: Wanted = READY) -> bool:
    """Wait for the wanted state and show progress; return whether it was reached in time (None: no timeout). Raises
    PermanentFailure."""
    from remuda.kube.errors import Unreachable

    timer = _Timer(seconds)
    display = _display(f"Cluster {namespace}/{name}", wanted, seconds)
    root: Branch | None = None
    stuck = _Stuck(wanted)
    try:
        async with _changes(client, namespace, name) as changed:
            while True:
                # Clear before the look: a change that happens during the look causes another one.
                changed.clear()
                try:
                    root = await _look(client, namespace, name)
                except Unreachable as error:
                    display.trouble(str(error), timer.elapsed)
                    changed.set()
                else:
                    if _is_reached(root, wanted):
                        display.done(root, timer.elapsed)
                        return True
                    display.show(root, timer.elapsed)
                    if stuck.is_sure(root, timer.elapsed):
                        display.failed(root, timer.elapsed)
                        raise PermanentFailure
                if not await _next_look(changed, timer, display, stuck.recheck_seconds(timer.elapsed)):
                    display.in_vain(root, timer.elapsed)
                    return False
    finally:
        display.close()


async def _look(client: Client, namespace: str, name: str) -> Branch | None:
    """Return the tree of the cluster; None if it does not exist."""
    from remuda.provisioning import tree_loader

    try:
        return await tree_loader.look(client, namespace, name)
    except tree_loader.NoSuchCluster:
        return None


def _is_reached(root: Branch | None, wanted: Wanted) -> bool:
    return root is None if wanted in (GONE, NEVER) else root is not None and root.well


class _Stuck:
    """Memory of the permanent failure that the last looks have shown."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._seen = False
        self._failure = ""
        self._since = 0.0

    def is_sure(self, root: Branch | None, elapsed: float) -> bool:
        failure = self._find(root)
        if failure != self._failure:
            self._failure, self._since = failure, elapsed
        self._seen |= root is not None
        return bool(failure) and elapsed - self._since >= _SURE_SECONDS

    def _find(self, root: Branch | None) -> str:
        """Return the object and the reason of a permanent failure; empty if there is none."""
        from remuda.provisioning.blocker import permanent_failure

        if self._wanted == NEVER:
            return ""
        if self._wanted == READY and (self._seen if root is None else root.judgement.state == "deleting"):
            return "deleted"
        leaf = None if root is None else permanent_failure(root)
        return "" if leaf is None else f"{leaf}: {leaf.judgement.reason}"

    def recheck_seconds(self, elapsed: float) -> float:
        """Return the longest time until the next look."""
        return max(self._since + _SURE_SECONDS - elapsed, 0.0) if self._failure else _MOST_INTERVAL


async def _next_look(changed: asyncio.Event, timer: _Timer, display: Lines, most: float) -> bool:
    """Wait until the tree may have changed, `most` seconds at most. Return False when the time is over."""
    latest = timer.elapsed + most
    await asyncio.sleep(min(_LEAST_INTERVAL, timer.left))
    while timer.left > 0:
        if timer.elapsed >= latest:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), min(_TICK, timer.left, latest - timer.elapsed))
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


# ---- changes --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _changes(client: Client, namespace: str, name: str) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set whenever an object of the cluster changes. Servers and hosts are not watched: their
    changes show in the conditions of the Machine."""
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
        await asyncio.sleep(_RETRY_SECONDS)
        # Changes between two watches are not reported, so look again.
        changed.set()


# ---- display --------------------------------------------------------------------------------------------------------


def _display(what: str, wanted: Wanted, timeout: float | None) -> Lines:
    drawn = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Frames(what, wanted, timeout) if drawn else Lines(what, wanted, timeout)


class Lines:
    """Progress as lines, for logs and pipes: one line for each change of what delays the cluster."""

    def __init__(self, what: str, wanted: Wanted, timeout: float | None) -> None:
        self.what = what
        self.wanted = wanted
        self.timeout = timeout
        self._printed = ""

    def show(self, root: Branch | None, elapsed: float) -> None:
        self._print(_blocker_line(root), elapsed)

    def trouble(self, text: str, elapsed: float) -> None:
        self._print(text, elapsed)

    def tick(self, elapsed: float) -> None:
        pass

    def done(self, root: Branch | None, elapsed: float) -> None:
        from remuda.cli.tree_text import span

        click.echo(f"{self.what} is {self.wanted or GONE} after {span(elapsed)}", err=True)

    def failed(self, root: Branch | None, elapsed: float) -> None:
        if self.wanted == READY and (root is None or root.judgement.state == "deleting"):
            self._explain(f"{self.what} does not become ready: it is deleted", root)
        else:
            verb = "become" if self.wanted == READY else "be"
            self._explain(f"{self.what} cannot {verb} {self.wanted} before a user acts", root)

    def in_vain(self, root: Branch | None, elapsed: float) -> None:
        from remuda.cli.tree_text import span

        self._explain(f"{self.what} is not {self.wanted} after {span(elapsed)}; the controllers continue", root)

    def _explain(self, end: str, root: Branch | None) -> None:
        print_note(end)
        if root is not None:
            from remuda.cli.tree_text import chain_lines

            click.echo("\n".join(chain_lines(root, width=errors_width())), err=True)

    def close(self) -> None:
        pass

    def _print(self, text: str, elapsed: float) -> None:
        from remuda.cli.tree_text import span

        if text != self._printed:
            self._printed = text
            click.echo(f"{span(elapsed):>6}  {text}", err=True)


class Frames(Lines):
    """Progress on a terminal: the tree, redrawn in place."""

    def __init__(self, what: str, wanted: Wanted, timeout: float | None) -> None:
        super().__init__(what, wanted, timeout)
        self._root: Branch | None = None
        self._trouble = ""
        self._drawn: list[str] = []
        _control("\x1b[?25l")

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

    def _explain(self, end: str, root: Branch | None) -> None:
        self._put([])
        super()._explain(end, root)

    def close(self) -> None:
        _control("\x1b[?25h")

    def _draw(self, elapsed: float, *, heading: bool = True) -> None:
        from remuda.cli import tree_text

        width, height = _screen()
        room = max(height - 3, 3)
        ahead = []
        if heading:
            end = f" of {tree_text.span(self.timeout)}" if self.timeout is not None else ""
            aim = f"waiting until {self.what} is {self.wanted}" if self.wanted else f"{self.what}, press Ctrl-C to stop"
            text = f"{aim}, {tree_text.span(elapsed)}{end}"
            ahead = [click.style(line, dim=True) for line in wrapped(text, width)]
        if self._trouble:
            ahead += wrapped(self._trouble, width, "  ")[:3]
        body = [] if self._root is None else tree_text.lines(self._root, width=width, height=room - len(ahead))
        self._put(ahead + body)

    def _put(self, frame: list[str]) -> None:
        """Replace the drawn frame in one write, so that nothing flickers.

        A terminal that became narrower has wrapped the old lines, so rows are counted anew.
        """
        if wants_no_colour():
            frame = [click.unstyle(line) for line in frame]
        if frame == self._drawn:
            return
        width = max(_screen().columns, 1)
        up = sum(max(-(-len(click.unstyle(line)) // width), 1) for line in self._drawn)
        back = f"\x1b[{up}A" if up else ""
        _control(back + "\r" + "".join(f"{line}\x1b[K\n" for line in frame) + "\x1b[J")
        self._drawn = frame


def _screen() -> os.terminal_size:
    """Return the size of the terminal that is drawn on: standard output may be a pipe."""
    return terminal_size(sys.stderr) or os.terminal_size((80, 24))


def _control(text: str) -> None:
    """Write control sequences; `color=True`, because click strips them with NO_COLOR otherwise."""
    click.echo(text, nl=False, err=True, color=True)


def _blocker_line(root: Branch | None) -> str:
    from remuda.provisioning import blocker

    if root is None:
        return "the cluster does not exist"
    leaf = next(reversed(blocker.blocking(root)), root)
    judgement = leaf.judgement
    first = next(iter(judgement.message.splitlines()), judgement.reason)
    return f"{leaf}: {judgement.state}{f': {first}' if first else ''}"
