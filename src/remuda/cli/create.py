"""`remuda create cluster`: a cluster from flags, or from the answers to prompts.

Everything is checked before anything is created: flags here, objects by a dry run at the server. The pools' Configs are
created first and the Cluster last, so that an interrupted command never leaves a cluster. If a create fails, the
objects created so far are deleted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import choices, exit_codes, own_servers, progress, shell_completion
from remuda.cli.channels import channels_option
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, YAML, print_text, print_value
from remuda.cli.text_wrap import counted, print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.declaration import ClusterDeclaration

Json = dict[str, Any]


@click.group(name="create", context_settings=HELP)
def command() -> None:
    """Create a cluster.

    \b
      remuda create cluster prairie --servers 3 --workers 2 --wait
      remuda create cluster

    Objects of any kind are created by `remuda apply -f FILE`.
    """


@command.command(context_settings=HELP)
@click.argument("name", default="")
@click.option("-n", "--namespace", default="fleet-default", show_default=True, help="Namespace of the cluster.")
@click.option(
    "--driver",
    default="",
    shell_complete=shell_completion.drivers,
    help="Node driver that creates the machines. Default: existing if you name hosts; nspawn if you are root and its "
    "hosts can reach the management plane; else process. nspawn and process create machines on this computer.",
)
@click.option(
    "--distribution",
    type=click.Choice(choices.DISTRIBUTIONS),
    help="Kubernetes distribution. Default: nano with the driver process, else k3s.",
)
@click.option(
    "--kubernetes-version",
    default="",
    metavar="VERSION",
    shell_complete=shell_completion.versions,
    help="Kubernetes version, for example v1.36.4+k3s1, or a channel: stable, latest, v1.36. Default: stable.",
)
@click.option(
    "--allow-unknown-version",
    is_flag=True,
    help="Accept a version that no channel, artefact or cluster has: your nodes can install it all the same.",
)
@channels_option
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="[USER@]ADDRESS[:PORT]",
    help="Server that you own, for the driver existing; the first ones become servers, the others workers. Repeatable, "
    "or a list with commas.",
)
@click.option(
    "--ssh-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Private SSH key for the hosts, stored in the Secret NAME-ssh-key.",
)
@click.option(
    "--servers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of control plane nodes."
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=None,
    help="Number of workers. With 0, the servers also run Pods. Default: 1, or all hosts that are not servers.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=shell_completion.driver_options,
    help="Option of the driver. Repeatable.",
)
@click.option("--credential", default="", metavar="SECRET", help="Secret with the driver's cloud credential.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of the cluster. Repeatable.")
@click.option(
    "--config", multiple=True, metavar="KEY=VALUE", help="Setting of the distribution, for all nodes. Repeatable."
)
@click.option(
    "--self-heal/--no-self-heal",
    default=True,
    help="Replace workers whose Node fails for 5 minutes, while at most 40% of them fail. Always off with drivers for "
    "servers that already exist.  [default: self-heal]",
)
@progress.wait_options
@click.option("--dry-run", is_flag=True, help="Print the objects, and create nothing.")
@click.option("--yes", is_flag=True, help="Never prompt.")
@click.option(
    "-o", "--output", type=click.Choice([YAML, JSON]), default=YAML, show_default=True, help="Format of --dry-run."
)
@kubeconfig_option
def cluster(
    name: str,
    namespace: str,
    kubernetes_version: str,
    distribution: str | None,
    options: tuple[str, ...],
    labels: tuple[str, ...],
    config: tuple[str, ...],
    allow_unknown_version: bool,
    channels_file: Path | None,
    hosts: tuple[str, ...],
    ssh_key: Path | None,
    wait: bool,
    timeout: float,
    dry_run: bool,
    yes: bool,
    output: str,
    kubeconfig: Path | None,
    **rest: Any,
) -> None:
    """Create the cluster NAME: its machines, with a Kubernetes distribution on them.

    Without NAME, on a terminal, the command prompts for the settings and shows what it will create.

    \b
      remuda create cluster prairie --wait
      remuda create cluster ranch --host 192.0.2.10,192.0.2.11 \\
        --ssh-key ~/.ssh/id_ed25519 --kubernetes-version stable
      remuda create cluster prairie --servers 3 --workers 2 --driver nspawn \\
        --kubernetes-version v1.36.4+k3s1 --config secrets-encryption=true
      remuda create cluster range --driver amazonec2 --credential aws \\
        --option ami=ami-0123456789 --option instanceType=t3.medium --workers 4
      remuda create cluster prairie --dry-run > prairie.yaml

    --dry-run prints the declared cluster and its machine Configs, for `remuda plan -f` and `remuda apply -f`. For
    Cluster API objects from a clusterctl template, use `remuda generate cluster`.
    """
    interactive = not name
    if interactive and (yes or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise click.UsageError("missing NAME: remuda create cluster NAME")
    driver = rest["driver"] or (own_servers.DRIVER if hosts else choices.driver(kubeconfig))
    given: Json = {
        "name": name,
        "namespace": namespace,
        "driver": driver,
        "servers": rest["servers"],
        "workers": 1 if rest["workers"] is None else rest["workers"],
        "credential": rest["credential"],
        "labels": dict(choices.pairs(labels, "--label")),
        "config": _values(choices.pairs(config, "--config")),
    }
    key = _use_hosts(given, hosts, ssh_key, rest["workers"])
    offered = choices.offer(kubeconfig, channels_file)

    def version(text: str, driver: str) -> str:
        distro = choices.distribution_for(text, distribution or "", driver)
        found = choices.version(text, distro, offered)
        if not allow_unknown_version:
            choices.check_exists(found, offered)
        return found

    if interactive:
        from remuda.cli.prompts import ask, existing_names

        taken = existing_names(kubeconfig, namespace)
        given |= ask(given, kubernetes_version, version, taken=taken, fixed=bool(hosts))
    else:
        given["version"] = version(kubernetes_version, driver)
    given["self_heal"] = rest["self_heal"] and _can_replace(given["driver"])
    choices.warn_of_missing_artefacts(given["version"], offered)
    given["options"] = _options(given["driver"], choices.pairs(options, "--option"), kubeconfig)
    if key:
        given["credential"] = own_servers.key_secret_name(given["name"])
    wanted, objects = _declared(given)
    if dry_run or interactive:
        _print(objects, output)
        if key:
            _tell_of_key(wanted, ssh_key)
    if dry_run:
        return
    if interactive and not click.confirm("Create it?", default=True, err=True):
        click.echo("nothing was created", err=True)
        raise SystemExit(exit_codes.NO)
    secrets = [own_servers.key_secret(namespace, wanted.name, key)] if key else []
    connected(kubeconfig, lambda client: create(client, wanted, [*secrets, *objects]))
    print_text(f"Cluster {wanted.name} created: {wanted.version}, {_counts(wanted)}, driver {wanted.driver}")
    if wait:
        progress.wait(kubeconfig, namespace, wanted.name, timeout=timeout)
    else:
        click.echo(f"to follow its progress: {progress.watch_command(namespace, wanted.name)}", err=True)


def _use_hosts(given: Json, hosts: Sequence[str], ssh_key: Path | None, workers: int | None) -> str:
    """Distribute the hosts over the pools, and return the private key; empty if there is none. Raises UsageError."""
    if not hosts and ssh_key is None:
        return ""
    if given["driver"] != own_servers.DRIVER or not hosts:
        raise click.UsageError(
            f"--host and --ssh-key belong together, and to the driver {own_servers.DRIVER}: remuda create cluster NAME "
            f"--driver {own_servers.DRIVER} --host ADDRESS,ADDRESS --ssh-key FILE"
        )
    if (ssh_key is None) == (not given["credential"]):
        raise click.UsageError("--host needs a private key: --ssh-key FILE, or --credential SECRET (with privateKey)")
    found = own_servers.hosts(hosts)
    given["servers"], given["workers"] = own_servers.counts(len(found), given["servers"], workers)
    of_servers, of_workers = own_servers.pool_options(found, given["servers"], given["workers"])
    given["pool_options"] = {"servers": of_servers, "workers": of_workers}
    return own_servers.read_key(ssh_key) if ssh_key is not None else ""


def _tell_of_key(wanted: ClusterDeclaration, ssh_key: Path | None) -> None:
    print_note(
        f"The private key is not printed. To create its Secret: kubectl create secret generic {wanted.credential} "
        f"-n {wanted.namespace} --from-file={own_servers.KEY}={ssh_key}"
    )


def _declared(given: Mapping[str, Any]) -> tuple[ClusterDeclaration, list[Json]]:
    from remuda.provisioning.declaration import BadRequest, ClusterDeclaration, declare

    wanted = ClusterDeclaration(**given)
    try:
        return wanted, declare(wanted)
    except BadRequest as error:
        raise click.ClickException(str(error)) from None


def _print(objects: Sequence[Json], output: str) -> None:
    if output == JSON:
        print_value({"apiVersion": "v1", "kind": "List", "items": objects}, JSON)
        return
    from remuda.cli import yaml_output

    click.echo(yaml_output.dump_all(objects), nl=False)


def _counts(wanted: ClusterDeclaration) -> str:
    return f"{counted(wanted.servers, 'server')}, {counted(wanted.workers, 'worker')}"


def _values(given: Sequence[tuple[str, str]]) -> Json:
    """Parse the values of a distribution's config: YAML, as in its config file."""
    import yaml

    found = {}
    for key, text in given:
        try:
            found[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise click.UsageError(f"--config {key}: {text!r} is not valid YAML") from None
    return found


# ---- options of the driver -------------------------------------------------------------------------------------------


def _options(driver: str, given: Sequence[tuple[str, str]], kubeconfig: Path | None) -> Json:
    from remuda.provisioning.declaration import BadRequest, read_options

    properties, required = _model(driver, kubeconfig)
    try:
        return read_options(driver, properties, given, required)
    except BadRequest as error:
        raise click.ClickException(str(error)) from None


def _can_replace(driver: str) -> bool:
    from remuda.providers.shared import drivers

    return drivers.is_replaceable(driver)


def _model(driver: str, kubeconfig: Path | None) -> tuple[Mapping[str, Any], Sequence[str]]:
    """Return the options of a driver, and which are required.

    An installed driver describes itself; for others, such as those of rancher-machine, the management plane is asked.
    """
    from remuda.providers.machine.options import of_driver
    from remuda.providers.shared import drivers

    try:
        model = of_driver(drivers.find(driver))
    except drivers.NoSuchDriver as error:
        found = connected(kubeconfig, lambda client: _served(client, driver))
        if found is None:
            raise click.ClickException(f"{error}; the management plane has no active driver of that name") from None
        return found, ()
    return model.properties(defaults=False), model.required


async def _served(client: HttpClient, driver: str) -> Mapping[str, Any] | None:
    import msgspec

    from remuda.capi.external import DEFINITION, definition_name
    from remuda.kube.errors import StatusError
    from remuda.providers.shared import names
    from remuda.providers.shared.types.machine import config_kind
    from remuda.provisioning.machine_templates import known_options

    try:
        name = definition_name(names.CONFIG_GROUP, config_kind(driver).name)
        return known_options(msgspec.json.decode(await client.get(DEFINITION.target, "", name)))
    except StatusError:
        return None


# ---- creating --------------------------------------------------------------------------------------------------------


async def create(client: HttpClient, wanted: ClusterDeclaration, objects: Sequence[Json]) -> None:
    """Create all objects, or none. Raises ClickException, StatusError."""
    from remuda.kube.errors import StatusError

    await _refuse_existing(client, wanted)
    await _dry_run(client, objects)
    made: list[Json] = []
    try:
        for obj in objects:
            made.append(await _create(client, obj))
        await _own_secrets(client, made)
    # Also for Ctrl-C: objects without their Cluster must not stay.
    except BaseException as error:
        await _roll_back(client, made)
        if isinstance(error, StatusError):
            raise click.ClickException(f"{error}\nThe objects created so far were deleted again.") from None
        raise


async def _own_secrets(client: HttpClient, made: Sequence[Json]) -> None:
    """Let the Cluster own the Secrets that were created for it: they are deleted after its last machine."""
    cluster = made[-1]
    owner = {"apiVersion": cluster["apiVersion"], "kind": cluster["kind"], "controller": True}
    owner |= {name: cluster["metadata"][name] for name in ("name", "uid")}
    for obj in made:
        if obj["kind"] == "Secret":
            key = obj["metadata"]["namespace"], obj["metadata"]["name"]
            await client.patch(_target(obj), *key, {"metadata": {"ownerReferences": [owner]}})


async def _dry_run(client: HttpClient, objects: Sequence[Json]) -> None:
    """Dry-run all creates. The client drops warnings: the server would warn that the Configs do not exist yet."""
    from remuda.kube.http import HttpClient

    silent = HttpClient(client.access, warn=lambda text: None)
    try:
        for obj in objects:
            await _create(silent, obj, dry_run=True)
    finally:
        await silent.close()


async def _refuse_existing(client: HttpClient, wanted: ClusterDeclaration) -> None:
    from remuda.provisioning import tree_loader

    try:
        await tree_loader.find(client, wanted.namespace, wanted.name)
    except tree_loader.NoSuchCluster:
        return
    raise click.ClickException(
        f"cluster {wanted.name} already exists in {wanted.namespace}. Show it with remuda describe cluster "
        f"{wanted.name}; change it with remuda scale, remuda upgrade or remuda apply -f"
    )


async def _create(client: HttpClient, obj: Json, *, dry_run: bool = False) -> Json:
    """Create an object as the field manager of `remuda apply`, so that a manifest may change these fields later."""
    import msgspec

    from remuda.cli.manifest_apply import MANAGER
    from remuda.kube.errors import AlreadyExists, Conflict

    metadata = obj["metadata"]
    try:
        made: Json = msgspec.json.decode(
            await client.create(_target(obj), metadata["namespace"], obj, field_manager=MANAGER, dry_run=dry_run)
        )
    except (AlreadyExists, Conflict):
        raise click.ClickException(
            f"{obj['kind']} {metadata['namespace']}/{metadata['name']} already exists: delete it, or choose another "
            "name for the cluster"
        ) from None
    return made


async def _roll_back(client: HttpClient, made: Sequence[Json]) -> None:
    import contextlib

    from remuda.kube.errors import StatusError

    for obj in reversed(made):
        metadata = obj["metadata"]
        with contextlib.suppress(StatusError):
            await client.delete(_target(obj), metadata["namespace"], metadata["name"], uid=metadata["uid"])


def _target(obj: Json) -> Any:
    from remuda.capi.inflection import plural
    from remuda.kube.client import Target

    return Target(obj["apiVersion"], plural(obj["kind"]).lower())
