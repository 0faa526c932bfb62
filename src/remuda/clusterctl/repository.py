"""Files of a local clusterctl repository by their paths, and the config file that makes clusterctl use it.

    DIR/clusterctl.yaml
    DIR/<provider>/<version>/metadata.yaml, <type>-components.yaml
    DIR/infrastructure-remuda/<version>/cluster-template.yaml, cluster-template-<driver>.yaml

A repository can hold several versions: writing one keeps the others, and clusterctl uses the newest.

`clusterctl init` installs the components: CRDs, RBAC and the one program of our three providers. The bootstrap, control
plane and infrastructure providers are one program. Its Deployment is a component of the bootstrap provider, which both
of the others need; those two contribute their CRDs. The RBAC rules are those of rbac.yaml; tests check them against the
requests that the program sends. In such a management cluster the core of Cluster API is upstream's, so the program runs
without ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import yaml

import remuda
from remuda.capi import names as capi_names
from remuda.capi.inventory import PROVIDER, ProviderEntry, ProviderType
from remuda.clusterctl import program, templates
from remuda.clusterctl.program import Json
from remuda.clusterctl.templates import Flavour
from remuda.kube.client import Client, list_all
from remuda.kube.definitions import DEFINITION
from remuda.providers import setup as providers
from remuda.providers.machine.definitions import DRIVER_LABEL
from remuda.providers.shared import drivers, names

CONFIG = "clusterctl.yaml"
METADATA = "metadata.yaml"
DEFAULT_DRIVER = "process"  # of cluster-template.yaml: the driver without requirements

SERVER_URL, JOB_IMAGE = "REMUDA_SERVER_URL", "REMUDA_JOB_IMAGE"  # variables

_GRANTED = ("remuda-manager-core", "remuda-manager-providers")  # of rbac.yaml
_RBAC = "rbac.authorization.k8s.io"
_EVERY_VERB = ["get", "list", "watch", "create", "update", "patch", "delete"]
_NO_NODES = frozenset({"sim"})  # drivers whose servers run no nodes
_COMPONENTS: Mapping[ProviderType, str] = {
    "InfrastructureProvider": "infrastructure-components.yaml",
    "BootstrapProvider": "bootstrap-components.yaml",
    "ControlPlaneProvider": "control-plane-components.yaml",
}


def version() -> str:
    return f"v{remuda.__version__}"


def flavours() -> list[Flavour]:
    """Return the flavours of the installed drivers that are usable."""
    found = []
    for name in drivers.names():
        try:
            found.append(templates.of_driver(drivers.find(name)))
        except drivers.NoSuchDriver:
            continue
    return [one for one in found if one.driver not in _NO_NODES]


async def flavours_of(client: Client) -> list[Flavour]:
    """Return the flavours of the drivers that a management plane has."""
    listed = await list_all(client, DEFINITION.target, label_selector=DRIVER_LABEL)
    configs = [msgspec.json.decode(item) for item in listed.items]
    own = {flavour.driver: flavour for flavour in flavours()}
    found = [
        own.get(driver) or templates.of_definition(driver, config)
        for config in configs
        if config["spec"]["group"] == names.CONFIG_GROUP
        and (driver := config["metadata"]["labels"][DRIVER_LABEL]) not in _NO_NODES
    ]
    return sorted(found, key=lambda flavour: flavour.driver)


def template_name(driver: str) -> str:
    return f"cluster-template-{driver}.yaml"


def cluster_templates(wanted: Iterable[Flavour]) -> dict[str, str]:
    """Return the templates by the file names that clusterctl expects."""
    made = {one.driver: templates.cluster_template(one) for one in wanted}
    named = {template_name(driver): text for driver, text in made.items()}
    return {"cluster-template.yaml": made[DEFAULT_DRIVER], **named} if DEFAULT_DRIVER in made else named


def files(wanted: Iterable[Flavour]) -> dict[str, str]:
    """Return all files except the config file, which contains absolute paths."""
    found: dict[str, str] = {}
    for entry in providers.entries(version()):
        place = f"{entry.label}/{entry.version}"
        found[f"{place}/{METADATA}"] = _metadata(entry)
        found[f"{place}/{_COMPONENTS[entry.type]}"] = components(entry.type, entry.version)
        if entry.type == "InfrastructureProvider":
            found |= {f"{place}/{name}": text for name, text in cluster_templates(wanted).items()}
    return found


def config(directory: Path) -> str:
    """Return the config file. `directory`: absolute path of the repository."""
    known = [
        # clusterctl reads `latest` as the newest version in the directory.
        {"name": entry.name, "type": entry.type, "url": f"{directory}/{entry.label}/latest/{_COMPONENTS[entry.type]}"}
        for entry in providers.entries(version())
    ]
    return str(yaml.safe_dump({"providers": known}, sort_keys=False, width=1000))


def write(directory: Path, wanted: Iterable[Flavour]) -> list[Path]:
    """Write the repository and return the paths of its files. Raises OSError."""
    directory = directory.absolute()
    found = {**files(wanted), CONFIG: config(directory)}
    for name, text in found.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [directory / name for name in found]


def _metadata(entry: ProviderEntry) -> str:
    major, minor = remuda.__version__.split(".")[:2]
    series = [{"major": int(major), "minor": int(minor), "contract": capi_names.VERSION}]
    return str(
        yaml.safe_dump(
            {"apiVersion": PROVIDER.api_version, "kind": "Metadata", "releaseSeries": series}, sort_keys=False
        )
    )


# -- components


def components(type: ProviderType, version: str) -> str:
    """Return the text of <type>-components.yaml. `version`: version of the program, such as "v0.1.0"."""
    objects = [program.named("v1", "Namespace", program.NAMESPACE, namespace=""), *definitions(type)]
    if type == "BootstrapProvider":
        objects += [*_rbac(), *program.services(), _deployment(version)]
    return program.text(objects)


def definitions(type: ProviderType) -> list[Json]:
    """Return the CRDs labelled with that provider; those without a label are the infrastructure provider's."""
    own = {one.type: one.label for one in providers.entries("")}
    found = [(one, one["metadata"]["labels"].get(capi_names.PROVIDER)) for one in providers.definitions()]
    return [one for one, label in found if (label or own["InfrastructureProvider"]) == own[type]]


def _rbac() -> list[Json]:
    """Return the RBAC objects, with all rules in one role: the aggregated role on such a cluster is upstream's."""
    known = program.rights()
    rules = [rule for name in _GRANTED for rule in known["ClusterRole", name]["rules"]]
    core = {"apiGroups": [names.GROUP, names.MACHINE_GROUP], "resources": ["*"], "verbs": _EVERY_VERB}
    shown = {**program.named(f"{_RBAC}/v1", "ClusterRole", f"{program.MANAGER}-kinds", namespace=""), "rules": [core]}
    # Contract of Cluster API: its core gets the rights to the kinds of providers from roles with this label.
    shown["metadata"]["labels"] = {capi_names.AGGREGATE_TO_MANAGER: "true"}
    role = {**program.named(f"{_RBAC}/v1", "ClusterRole", program.MANAGER, namespace=""), "rules": rules}
    kept = [known[kind, program.MANAGER] for kind in ("ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding")]
    return [*kept, role, shown]


def _deployment(version: str) -> Json:
    image = f"localhost/remuda:{version}"  # users set the registry with clusterctl's setting `images`
    arguments = program.arguments("providers", f"${{{SERVER_URL}}}", f"${{{JOB_IMAGE}:={image}}}")
    return program.deployment(image, arguments)
