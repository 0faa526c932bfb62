"""`remuda generate cluster`: print a cluster's objects from a template with variables, without a server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import choices, manifest_files, shell_completion
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, print_table, print_value

if TYPE_CHECKING:
    from remuda.clusterctl.generate import Variable

_PROVIDER = "remuda"
_EXAMPLE = "v1.36.4+k3s1"


@click.group(name="generate", context_settings=HELP)
def command() -> None:
    """Print manifests from templates.

    \b
      remuda generate cluster prairie --kubernetes-version v1.36.4+nano1
    """


@command.command(context_settings=HELP)
@click.argument("name")
@click.option(
    "--kubernetes-version",
    metavar="VERSION",
    help=f"Kubernetes version, for example {_EXAMPLE}. Default: $KUBERNETES_VERSION.",
)
@click.option(
    "--control-plane-machine-count",
    "servers",
    type=click.IntRange(min=1),
    help="Number of control plane nodes. Default: $CONTROL_PLANE_MACHINE_COUNT, else 1.",
)
@click.option(
    "--worker-machine-count",
    "workers",
    type=click.IntRange(min=0),
    help="Number of workers. Default: $WORKER_MACHINE_COUNT, else 0.",
)
@click.option(
    "-n", "--target-namespace", "namespace", default="default", show_default=True, help="Namespace of all objects."
)
@click.option(
    "-f",
    "--flavor",
    "--driver",
    "flavour",
    default="",
    shell_complete=shell_completion.drivers,
    help="Use the built-in template of this driver, for example nspawn.",
)
@click.option(
    "--from", "source", metavar="FILE", default="", help="Use the template in this file; - for standard input."
)
@click.option(
    "-i", "--infrastructure", default="", metavar="PROVIDER", help="For compatibility with clusterctl: must be remuda."
)
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Value of a variable. Repeatable.")
@click.option("--list-variables", is_flag=True, help="Only print the variables of the template.")
@click.option(
    "-o",
    "--output",
    type=click.Choice([TABLE, YAML, JSON]),
    help="Output format. Default: yaml; table for --list-variables.",
)
def cluster(
    name: str,
    kubernetes_version: str | None,
    servers: int | None,
    workers: int | None,
    namespace: str,
    flavour: str,
    source: str,
    infrastructure: str,
    given: tuple[str, ...],
    list_variables: bool,
    output: str | None,
) -> None:
    """Print the Cluster API objects of the cluster NAME from a template.

    This is `clusterctl generate cluster` with the same flags, but without a server. Values come from flags, then --set,
    then the environment, then the template's defaults: ${VAR:=default} or ${VAR:-default}. ${VAR^^}, ${VAR,,}, ${#VAR},
    ${VAR:1:2}, ${VAR#a}, ${VAR%a} and ${VAR/a/b} are supported; $$ is a dollar sign. For a declared cluster,
    which is shorter, use `remuda create cluster --dry-run`.

    \b
      remuda generate cluster prairie --kubernetes-version v1.36.4+nano1 \\
        --worker-machine-count 2 | remuda apply -f -
      remuda generate cluster prairie --flavor nspawn --list-variables
      remuda generate cluster ranch --flavor amazonec2 --set AMAZONEC2_AMI=ami-1 \\
        --kubernetes-version v1.36.4+k3s1 > ranch.yaml
      remuda generate cluster prairie --from template.yaml -n team-a
    """
    from remuda.clusterctl import generate
    from remuda.clusterctl.substitution import BadTemplate, MissingVariables, substitute
    from remuda.provisioning.declaration import BadRequest, check_name

    if infrastructure.partition(":")[0] not in ("", _PROVIDER):
        raise click.UsageError(f"--infrastructure {infrastructure}: for templates of other providers use --from FILE")
    text, place = _template(flavour, source)
    flags = {
        generate.CLUSTER_NAME: name,
        generate.NAMESPACE: namespace,
        generate.KUBERNETES_VERSION: kubernetes_version,
        generate.SERVERS: servers,
        generate.WORKERS: workers,
    }
    given_flags = {key: str(value) for key, value in flags.items() if value is not None}
    values = {**generate.DEFAULTS, **os.environ, **dict(choices.pairs(given, "--set")), **given_flags}
    try:
        check_name(name)
        if list_variables:
            _list(generate.variables(text, values), output or TABLE)
            return
        if not source and (version := values.get(generate.KUBERNETES_VERSION)):
            choices.checked_version(version)
        made = substitute(text, values)
    except MissingVariables as error:
        raise click.ClickException(_missing(error.names, name)) from None
    except BadTemplate as error:
        raise click.ClickException(f"{place}, {error}") from None
    except BadRequest as error:
        raise click.ClickException(str(error)) from None
    _print(generate.in_namespace(manifest_files.parse(made, place), namespace), output or YAML)


def _template(flavour: str, source: str) -> tuple[str, str]:
    """Return the text and the name of a template. Raises ClickException."""
    from remuda.clusterctl import repository

    if source:
        if flavour:
            raise click.UsageError("--flavor and --from exclude each other")
        return manifest_files.text(Path(source)), "standard input" if source == "-" else source
    known = {one.driver: one for one in repository.flavours()}
    driver = flavour or repository.DEFAULT_DRIVER
    if driver not in known:
        raise click.UsageError(
            f"unknown flavor {driver}; known: {', '.join(known)}. For other drivers of a management plane, run "
            "remuda clusterctl-repository DIR --kubeconfig FILE and use --from"
        )
    name = repository.template_name(driver)
    return repository.cluster_templates([known[driver]])[name], name


def _missing(names: Sequence[str], cluster: str) -> str:
    from remuda.clusterctl import generate

    flags: Mapping[str, str] = {generate.KUBERNETES_VERSION: f"--kubernetes-version {_EXAMPLE}"}
    widest = max(map(len, names))
    lines = [f"  {one.ljust(widest)}   {flags.get(one, f'--set {one}=…, or export {one}=…')}" for one in names]
    return "\n".join(
        [
            "the template needs values for these variables:",
            *lines,
            f"list all variables: remuda generate cluster {cluster} --list-variables, with the same --flavor or --from",
        ]
    )


def _list(found: Sequence[Variable], output: str) -> None:
    if output != TABLE:
        print_value(found, output)
        return
    rows = [[one.name, "yes" if one.required else "no", one.default, one.value] for one in found]
    print_table(("VARIABLE", "REQUIRED", "DEFAULT", "VALUE"), rows)


def _print(objects: Sequence[dict[str, object]], output: str) -> None:
    if output == TABLE:
        raise click.UsageError("-o table needs --list-variables")
    if output == JSON:
        print_value({"apiVersion": "v1", "kind": "List", "items": objects}, JSON)
        return
    from remuda.cli import yaml_output

    click.echo(yaml_output.dump_all(objects), nl=False)
