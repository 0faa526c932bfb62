"""`remuda drivers`: what machines can be made with, from the drivers' own option models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from remuda.cli.options import HELP

if TYPE_CHECKING:
    from remuda.providers.machine.options import Option, OptionModel


@click.group(name="drivers", context_settings=HELP)
def command() -> None:
    """What machines can be made with.

    These are the drivers of this program and of other packages beside it. Drivers of rancher-machine are known where it
    runs: `kubectl explain digitaloceanconfig` shows the options of one that is active.

    \b
      remuda drivers list
      remuda drivers describe amazonec2
    """


@command.command(name="list", context_settings=HELP)
def list_drivers() -> None:
    """All drivers at hand, each in a line.

    \b
      remuda drivers list
    """
    from remuda.providers.machine import drivers

    names = drivers.names()
    width = max(map(len, names), default=0)
    for name in names:
        try:
            said = drivers.find(name).doc
        except drivers.NoSuchDriver as error:
            said = str(error)
        click.echo(f"{name:<{width}}  {_first_sentence(said)}")


@command.command(context_settings=HELP)
@click.argument("name")
def describe(name: str) -> None:
    """What one driver makes and needs, and all of its options.

    \b
      remuda drivers describe process
    """
    from remuda.providers.machine import drivers
    from remuda.providers.machine.options import of_driver
    from remuda.providers.machine.types import config_kind, machine_kind, template_kind

    try:
        model = of_driver(drivers.find(name))
    except drivers.NoSuchDriver as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{model.doc}\n")
    kinds = (config_kind(name), template_kind(name), machine_kind(name))
    click.echo("Kinds: " + ", ".join(f"{kind.name} ({kind.api_version})" for kind in kinds))
    if model.credentials:
        click.echo(f"A credential Secret may bring: {', '.join(model.credentials)}")
    for option in model.options:
        click.echo(f"\n{option.name}  ({_facts(option, model)})\n  {option.flag}\n  {option.doc}")


def _facts(option: Option, model: OptionModel) -> str:
    import msgspec

    facts = [option.type.replace("`", "")]
    if option.name in model.required:
        facts.append("required")
    if option.secret:
        facts.append("secret")
    if option.default is not None:
        facts.append(f"default {msgspec.json.encode(option.default).decode()}")
    return ", ".join(facts)


def _first_sentence(text: str) -> str:
    first, dot, _ = text.replace("\n", " ").partition(". ")
    return first + ("." if dot else "")
