"""CRDs of NodeDriver and of the three kinds of every driver: its Config, MachineTemplate and Machine.

Common fields come from the types, the driver's own fields from its option model. The options of a machine and of a
template are immutable; the schema itself enforces that.
"""

from __future__ import annotations

from typing import Any

from remuda.capi import names as capi_names
from remuda.kube.definitions import WIDE, Definition, PrinterColumn, custom_resource_definition, label_path
from remuda.providers.machine.options import OptionModel
from remuda.providers.shared.types.machine import NODE_DRIVER, config_kind, machine_kind, template_kind

Json = dict[str, Any]

DRIVER_LABEL = "remuda.dev/node-driver"  # on the definitions of a driver's kinds: its name

_WRITTEN_BY_USERS = "remuda"  # category of the kinds in a cluster's manifest: `kubectl get remuda`
_CATEGORIES = ("cluster-api", "rke-machine")
_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date")
_CEL_WORDS = frozenset(
    (
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    )
)


def node_driver() -> Json:
    return custom_resource_definition(
        Definition(
            kind=NODE_DRIVER,
            categories=(_WRITTEN_BY_USERS,),
            columns=(
                PrinterColumn("Active", ".spec.active", "Whether the driver is enabled", "boolean"),
                PrinterColumn(
                    "Serving", '.status.conditions[?(@.type=="Active")].status', "Whether its kinds are served"
                ),
                PrinterColumn("Reason", '.status.conditions[?(@.type=="Active")].reason', "Why"),
                PrinterColumn("Description", ".spec.description", "What the driver is for", priority=WIDE),
                _AGE,
            ),
        )
    )


def of_driver(model: OptionModel) -> list[Json]:
    """Return the CRDs of the driver's three kinds."""
    return [_config(model), _template(model), _machine(model)]


def definition_names(driver: str) -> list[str]:
    kinds = (config_kind(driver), template_kind(driver), machine_kind(driver))
    return [f"{kind.plural}.{kind.group}" for kind in kinds]


def _labels(model: OptionModel) -> dict[str, str]:
    return {
        capi_names.contract_label("v1beta1"): "v1",
        capi_names.contract_label("v1beta2"): "v1",
        capi_names.CLUSTERCTL: "",
        DRIVER_LABEL: model.driver,
    }


def _config(model: OptionModel) -> Json:
    made = custom_resource_definition(
        Definition(
            kind=config_kind(model.driver),
            categories=(*_CATEGORIES, _WRITTEN_BY_USERS),
            status=False,
            labels=_labels(model),
            columns=(_AGE,),
        )
    )
    _add(_root(made), model, defaults=True)
    return made


def _template(model: OptionModel) -> Json:
    made = custom_resource_definition(
        Definition(
            kind=template_kind(model.driver),
            categories=_CATEGORIES,
            status=False,
            labels=_labels(model),
            columns=(PrinterColumn("Cluster", ".spec.clusterName", "The Cluster its machines belong to"), _AGE),
        )
    )
    spec = _root(made)["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    _add(spec, model, defaults=False)
    _freeze(spec, model, "the options of a template are immutable: create a new template and refer to it")
    return made


def _machine(model: OptionModel) -> Json:
    made = custom_resource_definition(
        Definition(
            kind=machine_kind(model.driver),
            categories=_CATEGORIES,
            labels=_labels(model),
            columns=(
                PrinterColumn("Cluster", label_path(capi_names.CLUSTER_NAME), "Its Cluster"),
                PrinterColumn(
                    "Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether the server is a managed host"
                ),
                PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why"),
                PrinterColumn("Provider ID", ".spec.providerID", "The server's identity", priority=WIDE),
                PrinterColumn("Address", ".status.addresses[0].address", "Its first address", priority=WIDE),
                PrinterColumn("Failures", ".status.failures", "Consecutive failed attempts", "integer", priority=WIDE),
                _AGE,
            ),
        )
    )
    spec = _root(made)["properties"]["spec"]
    _add(spec, model, defaults=False)
    _freeze(spec, model, "the options of a server are immutable: change its template, or delete the machine")
    return made


def _root(definition: Json) -> Json:
    found: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def _add(schema: Json, model: OptionModel, *, defaults: bool) -> None:
    schema["properties"] = {**model.properties(defaults=defaults), **schema["properties"]}
    if required := [*schema.get("required", ()), *model.required]:
        schema["required"] = required


def _freeze(spec: Json, model: OptionModel, why: str) -> None:
    """Make all options immutable. A rule on a field runs only if the field is in both objects; the rule on the whole
    object forbids adding or removing one."""
    for option in model.options:
        field = spec["properties"][option.name]
        field["x-kubernetes-validations"] = [
            *field.get("x-kubernetes-validations", ()),
            {"rule": "self == oldSelf", "message": why},
        ]
    if not model.options:
        return
    same = " && ".join(f"has(self.{_cel(one.name)}) == has(oldSelf.{_cel(one.name)})" for one in model.options)
    spec["x-kubernetes-validations"] = [{"rule": same, "message": why}]


def _cel(name: str) -> str:
    return f"__{name}__" if name in _CEL_WORDS else name
