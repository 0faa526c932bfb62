"""`remuda drivers`: the installed node drivers and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from remuda.cli import shell_completion
from remuda.cli.options import HELP
from remuda.cli.output import JSON, NAME, TABLE, YAML, output_option, print_text, print_value, terminal_width
from remuda.cli.text_wrap import wrapped

if TYPE_CHECKING:
    from remuda.providers.machine.options import Option, OptionModel


@click.group(name="drivers", context_settings=HELP)
def command() -> None:
    """List node drivers, which create the machines, and describe their options.

    The list has the drivers of Remuda and of other installed packages. It does not have those of rancher-machine: use
    `kubectl explain digitaloceanconfig` for the options of one that is active on a management plane.

    \b
      remuda drivers list
      remuda drivers describe amazonec2
    """


@command.command(name="list", context_settings=HELP)
@output_option(TABLE, JSON, YAML, NAME)
def list_drivers(output: str) -> None:
    """List the installed drivers.

    \b
      remuda drivers list
      remuda drivers list -o json
    """
    from remuda.providers.shared import drivers

    found = {}
    for name in drivers.names():
        try:
            found[name] = _first_sentence(drivers.find(name).doc)
        except drivers.NoSuchDriver as error:
            found[name] = _first_sentence(str(error))
    if output == NAME:
        click.echo("\n".join(found))
        return
    if output != TABLE:
        print_value([{"name": name, "description": text} for name, text in found.items()], output)
        return
    width = max(map(len, found), default=0) + 2
    for name, text in found.items():
        lines = wrapped(text, terminal_width(), " " * width)
        click.echo("\n".join([name.ljust(width) + lines[0].strip(), *lines[1:]]))


@command.command(context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.drivers)
@output_option(TABLE, JSON, YAML)
def describe(name: str, output: str) -> None:
    """Show what a driver creates, what it needs, and its options.

    \b
      remuda drivers describe process
      remuda drivers describe process -o yaml
    """
    from remuda.providers.machine.options import of_driver
    from remuda.providers.shared import drivers
    from remuda.providers.shared.types.machine import config_kind, machine_kind, template_kind

    try:
        model = of_driver(drivers.find(name))
    except drivers.NoSuchDriver as error:
        raise click.ClickException(str(error)) from None
    kinds = (config_kind(name), template_kind(name), machine_kind(name))
    if output != TABLE:
        print_value({"kinds": [f"{kind.name}.{kind.api_version}" for kind in kinds], **_described(model)}, output)
        return
    print_text(model.doc)
    click.echo()
    print_text("Kinds: " + ", ".join(f"{kind.name} ({kind.api_version})" for kind in kinds))
    if model.credentials:
        print_text(f"Options that a credential Secret may set: {', '.join(model.credentials)}")
    for option in model.options:
        print_text(f"\n{option.name}  ({_facts(option, model)})\n  {option.flag}\n  {option.doc}")


def _described(model: OptionModel) -> dict[str, Any]:
    options = [
        {
            "name": one.name,
            "flag": one.flag,
            "type": one.type.replace("`", ""),
            "required": one.name in model.required,
            "secret": one.secret,
            "default": one.default,
            "description": one.doc,
        }
        for one in model.options
    ]
    return {"name": model.driver, "description": model.doc, "credentials": model.credentials, "options": options}


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
