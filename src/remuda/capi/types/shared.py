"""Parts shared by several Cluster API kinds: references, selectors, gates, taints, template metadata.

References have no version: controllers read the version to use from the labels of the referenced kind's definition,
each time. They never leave the namespace of the object that holds them. A selector is compiled once however often it is
asked for: every reconcile of a MachineSet asks several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated

import msgspec

from remuda.kube.objects import Condition, Field, Part
from remuda.kube.requirements import SelectorError
from remuda.kube.schema import Rule
from remuda.kube.selectors import LabelSelector, label_selector_from

SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_KIND = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"
_API_VERSION = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[a-z]([-a-z0-9]*[a-z0-9])?$"
_CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_TAINT_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
_TAINT_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"

Int32 = Annotated[int, Field(format="int32")]
Seconds = Annotated[Int32, Field(minimum=0)]
Count = Annotated[Int32, Field()]
Percentage = Annotated[int | str, Field(int_or_string=True)]  # a number, or "25%"
Time = Annotated[str, Field(format="date-time")]
Generation = Annotated[int, Field("Generation from which this status was derived.", format="int64", minimum=1)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=SUBDOMAIN)]
KindName = Annotated[str, Field(min_length=1, max_length=63, pattern=_KIND)]
ConditionType = Annotated[str, Field(min_length=1, max_length=316, pattern=_CONDITION_TYPE)]
FailureDomainName = Annotated[str, Field(min_length=1, max_length=256)]
ClusterName = Annotated[
    str,
    Field(
        "Name of the Cluster that the object belongs to; immutable.",
        required=True,
        min_length=1,
        max_length=63,
        rules=(Rule(rule="self == oldSelf", message="field is immutable", reason="FieldValueForbidden"),),
    ),
]
Version = Annotated[str, Field(min_length=1, max_length=256)]
Conditions = Annotated[
    Sequence[Condition],
    Field("Conditions of the object.", list_type="map", list_map_keys=("type",), max_items=32),
]


class Reference(Part):
    """Reference to an object of a provider in the same namespace."""

    api_group: Annotated[str, Field("API group.", required=True, min_length=1, max_length=253, pattern=SUBDOMAIN)] = ""
    kind: Annotated[KindName, Field("Kind.", required=True)] = ""
    name: Annotated[ObjectName, Field("Name.", required=True)] = ""

    @property
    def defined(self) -> bool:
        return bool(self.api_group and self.kind and self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class TemplateReference(Part):
    """Reference to a template in the same namespace, with its API version."""

    api_version: Annotated[
        str, Field("API group and version.", required=True, min_length=1, max_length=317, pattern=_API_VERSION)
    ] = ""
    kind: Annotated[KindName, Field("Kind.", required=True)] = ""
    name: Annotated[ObjectName, Field("Name.", required=True)] = ""


class SelectorRequirement(Part):
    """Requirement on the labels of an object."""

    key: Annotated[str, Field("Key of the label.", required=True)] = ""
    operator: Annotated[str, Field("In, NotIn, Exists or DoesNotExist.", required=True)] = ""
    values: Annotated[Sequence[str], Field("Values for In and NotIn.", list_type="atomic")] = ()


class Selector(Part):
    """Selection of objects by their labels: all requirements must hold. Empty selects every object."""

    match_labels: Annotated[Mapping[str, str], Field("Labels with exactly these values.")] = {}
    match_expressions: Annotated[Sequence[SelectorRequirement], Field("Further requirements.", list_type="atomic")] = ()

    @property
    def empty(self) -> bool:
        return not self.match_labels and not self.match_expressions

    def compile(self) -> LabelSelector:
        """Raises SelectorError where the selector makes no sense."""
        return label_selector_from(msgspec.to_builtins(self))


def compiled_selector(selector: Selector) -> LabelSelector | None:
    """None where it makes no sense."""
    return _compiled(msgspec.json.encode(selector))


def selective_selector(selector: Selector) -> LabelSelector | None:
    """None also where it cannot tell some objects from all others."""
    found = compiled_selector(selector)
    return None if found is None or found.empty or found.nothing else found


@lru_cache(maxsize=4096)
def _compiled(encoded: bytes) -> LabelSelector | None:
    try:
        return msgspec.json.decode(encoded, type=Selector).compile()
    except SelectorError:
        return None


class TemplateMetadata(Part):
    """Labels and annotations of objects that are created from a template."""

    labels: Annotated[Mapping[str, str], Field("Labels to set.")] = {}
    annotations: Annotated[Mapping[str, str], Field("Annotations to set.")] = {}


class ConditionGate(Part):
    """Additional condition, usually set by another controller, that is part of the summary."""

    condition_type: Annotated[ConditionType, Field("Type of the condition.", required=True)] = ""
    polarity: Annotated[
        str, Field("Positive (the default): True is good. Negative: False is good.", enum=("Positive", "Negative"))
    ] = "Positive"


ConditionGates = Annotated[
    Sequence[ConditionGate], Field(list_type="map", list_map_keys=("conditionType",), min_items=1, max_items=32)
]


class MachineTaint(Part):
    """A taint of the Node."""

    key: Annotated[str, Field("Key of the taint.", required=True, min_length=1, max_length=317, pattern=_TAINT_KEY)] = (
        ""
    )
    value: Annotated[str, Field("Value of the taint.", min_length=1, max_length=63, pattern=_TAINT_VALUE)] = ""
    effect: Annotated[
        str, Field("Effect of the taint.", required=True, enum=("NoSchedule", "PreferNoSchedule", "NoExecute"))
    ] = ""
    propagation: Annotated[
        str,
        Field(
            "Always: keep the taint on the Node. OnInitialization: set it once, when the Node appears.",
            required=True,
            enum=("Always", "OnInitialization"),
        ),
    ] = ""


class MachineNaming(Part):
    """Naming of new Machines."""

    template: Annotated[
        str,
        Field(
            "Template with .cluster.name, .machineSet.name and .random; it must contain {{ .random }}.",
            min_length=1,
            max_length=256,
        ),
    ] = ""


class SetDeletion(Part):
    """Order of deletion when the MachineSet is scaled down."""

    order: Annotated[str, Field("Machines to delete first; Random if unset.", enum=("Random", "Newest", "Oldest"))] = (
        "Random"
    )


class VersionCount(Part):
    """Number of Machines that run a version."""

    version: Annotated[Version, Field("Kubernetes version.", required=True)] = ""
    replicas: Annotated[Int32, Field("Number of Machines that run it.", minimum=1)] = 0


class OldCondition(Part):
    """Condition in the format of the v1beta1 API."""

    type: Annotated[str, Field("Type of the condition.", required=True, min_length=1, max_length=256)] = ""
    status: Annotated[str, Field("True, False or Unknown.", required=True)] = ""
    severity: Annotated[str, Field("Error, Warning or Info.", max_length=32)] = ""
    last_transition_time: Annotated[Time, Field("Time at which the status last changed.", required=True)] = ""
    reason: Annotated[str, Field("Reason in one word.", min_length=1, max_length=256)] = ""
    message: Annotated[str, Field("Message for users.", min_length=1, max_length=10240)] = ""


OldConditions = Annotated[Sequence[OldCondition], Field("Conditions of the v1beta1 API.")]
OldFailureReason = Annotated[str, Field("Terminal failure of a provider, in one word.")]
OldFailureMessage = Annotated[
    str, Field("Terminal failure of a provider, as a message.", min_length=1, max_length=10240)
]
