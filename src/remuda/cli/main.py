"""The `remuda` command. Sub-commands are imported when they run, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import remuda
from remuda.cli import exit_codes
from remuda.cli.options import HELP
from remuda.cli.output import wants_no_colour
from remuda.cli.text_wrap import WORDS, fit, with_hint

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# section -> name -> (module, one line for `remuda --help`), in the order in which a new user needs them
_SECTIONS = {
    "Management plane": {
        "up": ("up", "Run the management plane on this machine."),
        "down": ("down", "Stop the management plane on this machine."),
        "status": ("status", "Show whether it runs, and where its log is."),
        "manager": ("manager", "Run the controllers on a Kubernetes cluster."),
        "apiserver": ("apiserver", "Run only the embedded Kubernetes API server."),
        "backup": ("backup", "Back up a data directory to one file."),
        "restore": ("restore", "Create a data directory from a backup."),
        "fsck": ("fsck", "Find and repair damaged objects in a data directory."),
        "artefacts": ("artefacts", "Manage the binaries and images served to nodes."),
        "channels": ("channels", "List or replace the versions of release channels."),
        "manifest": ("manifest", "Print a manifest to install Remuda on Kubernetes."),
    },
    "Clusters": {
        "create": ("create", "Create a cluster, from flags or interactively."),
        "generate": ("generate", "Print a cluster's manifest from a template."),
        "plan": ("plan", "Show what a manifest would do to each machine."),
        "export": ("export", "Print the manifest of a cluster as it runs."),
        "scale": ("scale", "Change the number of machines in a cluster."),
        "upgrade": ("upgrade", "Upgrade Kubernetes in place, on the same machines."),
        "edit": ("edit", "Edit a declared cluster, and see the effect first."),
        "describe": ("describe", "Show a cluster and its objects as a tree, or a machine."),
        "why": ("why", "Explain why a cluster is not ready."),
        "retry": ("retry", "Retry servers that could not be created or removed."),
        "pause": ("pause", "Stop the work of controllers on a cluster."),
        "resume": ("resume", "Let controllers work on a paused cluster again."),
        "diagnose": ("diagnose", "Collect a redacted support bundle."),
    },
    "Objects": {
        "get": ("get", "List objects of any kind, or get a kubeconfig."),
        "apply": ("apply", "Create or update the objects in a manifest."),
        "delete": ("delete", "Delete objects and wait for their removal."),
        "events": ("events", "List events of all objects or of one cluster."),
        "logs": ("logs", "Show the logs of machines' Jobs and agents."),
    },
    "Machines": {
        "machine": ("machine", "Open a shell on a machine, or show its logs."),
        "drivers": ("drivers", "List node drivers and their options."),
        "leaks": ("leaks", "Find servers that no Machine owns."),
    },
    "Users": {
        "user": ("user", "Manage users."),
        "token": ("token", "Create, list and revoke users' API tokens."),
        "grant": ("grant", "Grant or revoke a user's role in a cluster."),
    },
    "Other": {
        "version": ("version", "Show the client and server versions."),
        "completion": ("completion", "Print a shell completion script."),
        "clusterctl-repository": ("clusterctl_repository", "Write templates and components for clusterctl."),
    },
}
_COMMANDS = {name: entry for section in _SECTIONS.values() for name, entry in section.items()}


# Read-only commands: Ctrl-C is the normal way to leave them, so it prints no message.
_READ_ONLY = {
    "get",
    "describe",
    "why",
    "events",
    "logs",
    "machine",
    "plan",
    "version",
    "drivers",
    "leaks",
    "diagnose",
    "export",
    "status",
}
# Commands that only programs run.
_HIDDEN = {"machine-job": "machine_job"}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _HIDDEN.get(cmd_name) or _COMMANDS.get(cmd_name, ("", ""))[0]
        if not module:
            return None
        command: click.Command = importlib.import_module(f"remuda.cli.{module}").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise fit(with_hint(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command: handle Ctrl-C, honour NO_COLOR, and wrap errors to the width of the terminal.

        A command that needs its own message on Ctrl-C has printed it before KeyboardInterrupt arrives here.
        """
        if wants_no_colour():
            ctx.color = False
        try:
            return super().invoke(ctx)
        except click.Abort:  # Ctrl-C at a prompt
            click.echo("\ninterrupted; nothing was done", err=True)
            raise SystemExit(exit_codes.INTERRUPTED) from None
        except KeyboardInterrupt:
            warnings.simplefilter("ignore", RuntimeWarning)  # about coroutines that were never awaited
            read_only = ctx.invoked_subcommand in _READ_ONLY
            click.echo("" if read_only else "\ninterrupted; the management plane continues the operation", err=True)
            raise SystemExit(exit_codes.INTERRUPTED) from None
        except click.ClickException as error:
            raise fit(with_hint(error)) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing the commands."""
        from click.shell_completion import CompletionItem

        known = {name: text for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)}
        found = [CompletionItem(name, help=text) for name, text in known.items()]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, _COMMANDS))
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, (_, text) in section.items()])


@click.group(cls=LazyGroup, context_settings=HELP)
@click.version_option(remuda.__version__, prog_name="remuda")
def main() -> None:
    """Provision Kubernetes clusters, change them in place and reach them from anywhere.

    To start, run the management plane on this machine:

    \b
      remuda up --detach
      remuda create cluster prairie --wait
    """


def kubectl_plugin() -> None:
    """Run `kubectl remuda …`: the same commands, for the cluster that kubectl uses."""
    os.environ.setdefault("KUBECONFIG", str(Path.home() / ".kube" / "config"))
    main(prog_name="kubectl remuda")


if __name__ == "__main__":
    main()
