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
from remuda.cli.text_wrap import fit, helped

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# section -> name -> (module, one line for `remuda --help`), in the order in which somebody meets them
_SECTIONS = {
    "Run it": {
        "up": ("up", "Run everything on this machine, in one process."),
        "manager": ("manager", "Run the controllers on any Kubernetes."),
        "apiserver": ("apiserver", "Run the embedded Kubernetes API server alone."),
        "backup": ("backup", "Save a server's whole state to one file."),
        "restore": ("restore", "Make a data directory from a backup."),
        "fsck": ("fsck", "Find damaged objects in a data directory, and repair them."),
        "artefacts": ("artefacts", "What nodes install distributions from."),
        "manifest": ("manifest", "What runs this program on Kubernetes, to apply."),
    },
    "Clusters": {
        "create": ("create", "Create a cluster, by flags or by questions."),
        "generate": ("generate", "Print a cluster's manifest from a template."),
        "plan": ("plan", "What a manifest would do to each machine."),
        "scale": ("scale", "More machines, or fewer."),
        "upgrade": ("upgrade", "Another version of Kubernetes, on the same machines."),
        "describe": ("describe", "Show a cluster with everything that belongs to it."),
        "why": ("why", "Say why a cluster is not ready."),
        "diagnose": ("diagnose", "One file for whoever helps, without secrets."),
    },
    "Objects": {
        "get": ("get", "Show objects of any kind; get a cluster's kubeconfig."),
        "apply": ("apply", "Create or change what a manifest describes."),
        "delete": ("delete", "Delete objects, and wait until they are gone."),
        "events": ("events", "What happened, of everything or of one cluster."),
        "logs": ("logs", "What was said while machines were made."),
    },
    "Machines": {
        "machine": ("machine", "A shell on a machine, or the log of what made it."),
        "drivers": ("drivers", "What machines can be made with, and its options."),
        "leaks": ("leaks", "Servers of ours that no machine owns."),
    },
    "People": {
        "user": ("user", "Who may reach clusters."),
        "token": ("token", "What users prove themselves with: make, list, revoke."),
        "grant": ("grant", "Let a user into a cluster, or take that back."),
    },
    "Other": {
        "version": ("version", "The version of this program, and of the server."),
        "completion": ("completion", "A script that makes a shell complete commands."),
        "clusterctl-repository": ("clusterctl_repository", "Templates and components for clusterctl."),
    },
}
_COMMANDS = {name: entry for section in _SECTIONS.values() for name, entry in section.items()}


# They change nothing: Ctrl-C is how one leaves them.
_LOOKING = {"get", "describe", "why", "events", "logs", "machine", "plan", "version", "drivers", "leaks", "diagnose"}
# What programs run, not people.
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
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise fit(helped(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C ends every command the same way. What a command has to say of it, it has said by now. Colours are for
        terminals, and for who has not declined. Errors keep to the width of the terminal."""
        if wants_no_colour():
            ctx.color = False
        try:
            return super().invoke(ctx)
        except click.Abort:  # at a question
            click.echo("\ninterrupted; nothing was done", err=True)
            raise SystemExit(exit_codes.INTERRUPTED) from None
        except KeyboardInterrupt:
            warnings.simplefilter("ignore", RuntimeWarning)  # of what could not be awaited any more
            looked = ctx.invoked_subcommand in _LOOKING
            click.echo(
                "" if looked else "\ninterrupted; what was asked of the management plane goes on there", err=True
            )
            raise SystemExit(exit_codes.INTERRUPTED) from None
        except click.ClickException as error:
            raise fit(helped(error)) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without importing them all."""
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
    """Kubernetes clusters provisioned, managed in place and reachable from anywhere.

    Start with the management plane on this machine:

    \b
      remuda up
      remuda create cluster prairie --wait    # in another terminal
    """


def kubectl_plugin() -> None:
    """`kubectl remuda …`: the same commands, at the cluster that kubectl speaks to."""
    os.environ.setdefault("KUBECONFIG", str(Path.home() / ".kube" / "config"))
    main(prog_name="kubectl remuda")


if __name__ == "__main__":
    main()
