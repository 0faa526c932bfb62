"""`remuda completion`: what a shell needs to complete our commands; click makes it."""

from __future__ import annotations

import click

from remuda.cli.options import HELP

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_REMUDA_COMPLETE"  # in which the script tells this program that it is asked for completions


@click.command(name="completion", context_settings=HELP)
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print a script that makes a shell complete commands and options.

    \b
      remuda completion bash > ~/.local/share/bash-completion/completions/remuda
      remuda completion zsh > "${fpath[1]}/_remuda"
      remuda completion fish > ~/.config/fish/completions/remuda.fish
    """
    from click.shell_completion import get_completion_class

    from remuda.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "remuda", _VARIABLE).source())
