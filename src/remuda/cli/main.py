"""The `remuda` command. Sub-commands are imported when they run, so that `--help` answers at once."""

from __future__ import annotations

import importlib

import click

import remuda

# name -> (module, one line for `remuda --help`)
_COMMANDS = {
    "up": ("remuda.cli.up", "Run everything on this machine: API server and controllers."),
    "manager": ("remuda.cli.manager", "Run the controllers on any Kubernetes."),
    "describe": ("remuda.cli.describe", "Show a cluster with everything that belongs to it."),
    "why": ("remuda.cli.why", "Say why a cluster is not ready."),
    "plan": ("remuda.cli.plan", "Show what a manifest would do to each machine, before it is applied."),
    "machine": ("remuda.cli.machine", "Open a shell on a machine, or read the log of what made it."),
    "drivers": ("remuda.cli.drivers", "What machines can be made with, and each driver's options."),
    "user": ("remuda.cli.user", "Who may reach clusters."),
    "token": ("remuda.cli.token", "What users prove themselves with: make, list, revoke."),
    "grant": ("remuda.cli.grant", "Let a user into a cluster, as a role; or take that back."),
    "get": ("remuda.cli.get", "Get a kubeconfig for a cluster, through the proxy."),
    "artefacts": ("remuda.cli.artefacts", "What nodes install distributions from, kept where it is served."),
    "clusterctl-repository": (
        "remuda.cli.clusterctl_repository",
        "Write templates and components for clusterctl, from this installation.",
    ),
    "leaks": ("remuda.cli.leaks", "Servers of ours that no machine owns."),
    "apiserver": ("remuda.cli.apiserver", "Run the embedded Kubernetes API server alone."),
    "backup": ("remuda.cli.backup", "Save a running or stopped server's whole state to one file."),
    "restore": ("remuda.cli.restore", "Make a data directory from a backup."),
}


# What programs run, not people.
_HIDDEN = {"machine-job": "remuda.cli.machine_job"}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _HIDDEN.get(cmd_name) or _COMMANDS.get(cmd_name, ("", ""))[0]
        if not module:
            return None
        command: click.Command = importlib.import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(remuda.__version__, prog_name="remuda")
def main() -> None:
    """Kubernetes clusters provisioned, managed in place and reachable from anywhere.

    Start with the management plane on this machine:

    \b
      remuda up --data-dir ./remuda-data
      kubectl --kubeconfig ./remuda-data/admin.kubeconfig get clusters -A
    """


if __name__ == "__main__":
    main()
