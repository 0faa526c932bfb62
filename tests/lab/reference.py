"""The fields of every kind of ours, for docs/reference: read from the schemas that servers are given, so that a page
cannot say anything else than `kubectl explain` does.

What all kinds share is told once, on the index: metadata, conditions and label selectors are one line here. Where a
table of the code says what becomes of a field, its answer stands beside it, and nothing is told of what is below a
field that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from remuda.access.definitions import definitions as access_definitions
from remuda.capi.definitions import definitions as capi_definitions
from remuda.providers.bootstrap.definitions import definitions as bootstrap_definitions
from remuda.providers.controlplane.definitions import definitions as control_plane_definitions
from remuda.providers.controlplane.rules import fields as configuration_fields
from remuda.providers.machine.definitions import node_driver, of_driver
from remuda.providers.machine.options import OptionModel
from remuda.providers.shared.types.controlplane import RKEControlPlaneSpec
from remuda.provisioning import fields as cluster_fields
from remuda.provisioning.definitions import definitions as provisioning_definitions
from remuda.provisioning.types import ClusterSpec

Json = dict[str, Any]
Supports = Mapping[str, configuration_fields.Support]

GROUPS = {
    "provisioning.cattle.io": "What people write: a cluster in one resource.",
    "rke.cattle.io": "Our providers' kinds: infrastructure, bootstrap and control plane.",
    "rke-machine.cattle.io": "Servers, three kinds for each driver.",
    "management.cattle.io": "Clusters by their ids, users and their rights, drivers.",
    "cluster.x-k8s.io": "Cluster API's own kinds, in v1beta2.",
}
_COMMON = "rke-machine.cattle.io"  # and the Configs, whose group is another, on the same page


def every_definition() -> list[Json]:
    """Those of drivers as one that has no options would have them: what all drivers share."""
    found = [
        *provisioning_definitions(),
        *bootstrap_definitions(),
        *control_plane_definitions(),
        *of_driver(OptionModel(driver="driver", doc="", options=())),
        node_driver(),
        *access_definitions(),
        *capi_definitions(),
    ]
    return sorted(found, key=lambda one: _ORDER.get(_kind(one), len(_ORDER)))


_ORDER = {
    name: place
    for place, name in enumerate(
        (
            *("Cluster", "RKECluster", "RKEControlPlane", "RKEBootstrap", "RKEBootstrapTemplate", "CustomMachine"),
            *("DriverConfig", "DriverMachineTemplate", "DriverMachine"),
            *("NodeDriver", "User", "Token", "ClusterRoleTemplateBinding"),
            *("Machine", "MachineDeployment", "MachineSet", "MachineHealthCheck", "MachineDrainRule"),
        )
    )
}


def page_of(definition: Json) -> str:
    group: str = definition["spec"]["group"]
    return _COMMON if group == "rke-machine-config.cattle.io" else group


def index() -> str:
    rows = [
        f"| [{shown_kind(one)}]({page_of(one)}.md#{shown_kind(one, plain=True).lower()}) "
        f"| `{_api_version(one)}` | {_schema(one)['description']} |"
        for one in sorted(every_definition(), key=lambda one: list(GROUPS).index(page_of(one)))
    ]
    return "\n".join(["| kind | API version | what it is |", "|---|---|---|", *rows])


def kinds(group: str) -> str:
    return "\n\n".join(_section(one) for one in every_definition() if page_of(one) == group)


def _section(definition: Json) -> str:
    spec = definition["spec"]
    plural = spec["names"]["plural"]
    if spec["group"].startswith("rke-machine"):
        plural = plural.replace("driver", "<driver>")
    names = [f"`{name}`" for name in (plural, *spec["names"].get("shortNames", ()))]
    scope = "in a namespace" if spec["scope"] == "Namespaced" else "of the whole management plane"
    said = f"`{_api_version(definition)}`, {scope}; {', '.join(names)}."
    return "\n".join(
        [
            f"## {shown_kind(definition)}",
            "",
            f"{_schema(definition)['description']} {said}",
            "",
            table(_own_rows(definition), _supports(definition)) or "Nothing but the driver's own options.",
        ]
    )


def _own_rows(definition: Json) -> list[Row]:
    """Without what an RKEControlPlane has from its provisioning Cluster, where it is told."""
    found = list(rows(_schema(definition)))
    if _kind(definition) != "RKEControlPlane":
        return found
    shared = tuple(f"spec.{name}" for name in configuration_fields.CONFIGURATION[configuration_fields.c.Operations])
    return [row for row in found if not row.path.startswith(shared)]


def shown_kind(definition: Json, *, plain: bool = False) -> str:
    """A driver's kinds stand for those of all drivers."""
    kind = _kind(definition)
    if definition["spec"]["group"].startswith("rke-machine"):
        return kind if plain else f"`{kind.replace('Driver', '<Driver>')}`"
    return kind


def _supports(definition: Json) -> Supports:
    walked: Iterable[configuration_fields.Row] = ()
    if _api_version(definition) == "provisioning.cattle.io/v1":
        walked = configuration_fields.walk(cluster_fields.CLUSTER, ClusterSpec, "spec")
    elif _kind(definition) == "RKEControlPlane":
        walked = configuration_fields.walk(configuration_fields.CONTROL_PLANE, RKEControlPlaneSpec, "spec")
    return {row.path: row.support for row in walked}


class Row(msgspec.Struct, frozen=True):
    path: str
    type: str
    required: bool
    default: str
    doc: str


def rows(schema: Json, path: str = "") -> Iterator[Row]:
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        at = f"{path}.{name}" if path else name
        told = Row(at, _type(inner), name in required, _default(inner), _doc(inner))
        below = list(_below(inner, at))
        if path or told.doc or not below:  # "spec" by itself says nothing
            yield told
        yield from below


def _below(schema: Json, path: str) -> Iterator[Row]:
    if path.endswith(".conditions") or _is_selector(schema):
        return
    if "items" in schema:
        yield from rows(schema["items"], f"{path}[]")
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from rows(schema["additionalProperties"], f"{path}{{}}")
    else:
        yield from rows(schema, path)


def table(found: Iterable[Row], supports: Supports) -> str:
    """Empty if there is nothing to tell."""
    lines = []
    hidden: tuple[str, ...] = ()  # what is below a field that is not done
    for row in found:
        support = supports.get(row.path)
        if row.path.startswith(hidden):
            continue
        if support is not None and support.how != "done":
            hidden = (*hidden, f"{row.path}.", f"{row.path}[]", f"{row.path}{{}}")
        required = " **required**" if row.required else ""
        said = " ".join(part for part in (_support_text(support) or row.doc, row.default) if part)
        lines.append(f"| `{row.path}` | {row.type}{required} | {_cell(said)} |")
    return "\n".join(["| field | type | what it is |", "|---|---|---|", *lines]) if lines else ""


def _support_text(support: configuration_fields.Support | None) -> str:
    """What a field that is not done says of itself is less than why it is not."""
    return "" if support is None or support.how == "done" else f"**{support.how}**: {support.why}."


def _type(schema: Json) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if _is_selector(schema):
        return "label selector"
    kind = schema.get("type", "")
    if kind == "array":
        inner = _type(schema["items"])
        return "list" if inner == "object" else f"list of {inner}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_type(schema['additionalProperties'])}"
    if not kind or schema.get("x-kubernetes-preserve-unknown-fields"):
        return "anything"
    return "time" if schema.get("format") == "date-time" else str(kind)


def _is_selector(schema: Json) -> bool:
    return set(schema.get("properties", ())) == {"matchLabels", "matchExpressions"}


def _default(schema: Json) -> str:
    return f"Default: `{msgspec.json.encode(schema['default']).decode()}`." if "default" in schema else ""


def _doc(schema: Json) -> str:
    doc: str = schema.get("description", "")
    choices = schema.get("enum") or schema.get("items", {}).get("enum")
    if choices and not all(str(one) in doc for one in choices):
        doc = f"{doc} One of {', '.join(f'`{one}`' for one in choices)}."
    return " ".join(doc.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _kind(definition: Json) -> str:
    return str(definition["spec"]["names"]["kind"])


def _api_version(definition: Json) -> str:
    return f"{definition['spec']['group']}/{definition['spec']['versions'][0]['name']}"


def _schema(definition: Json) -> Json:
    found: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found
