"""Parts shared by several Cluster API kinds: references, selectors, gates, taints, template metadata.

References have no version: controllers read the version to use from the labels of the referenced kind's definition,
each time. They never leave the namespace of the object that holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from remuda.kube.objects import Condition, Field, Part
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
Generation = Annotated[int, Field("The generation this status was derived from.", format="int64", minimum=1)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=SUBDOMAIN)]
KindName = Annotated[str, Field(min_length=1, max_length=63, pattern=_KIND)]
ConditionType = Annotated[str, Field(min_length=1, max_length=316, pattern=_CONDITION_TYPE)]
FailureDomainName = Annotated[str, Field(min_length=1, max_length=256)]
ClusterName = Annotated[
    str,
    Field(
        "The Cluster this belongs to; it cannot be changed.",
        required=True,
        min_length=1,
        max_length=63,
        rules=(Rule(rule="self == oldSelf", message="field is immutable", reason="FieldValueForbidden"),),
    ),
]
Version = Annotated[str, Field(min_length=1, max_length=256)]
Conditions = Annotated[
    Sequence[Condition],
    Field("What is known of the object now.", list_type="map", list_map_keys=("type",), max_items=32),
]


class Reference(Part):
    """An object of a provider, in the same namespace."""

    api_group: Annotated[
        str, Field("Its API group.", required=True, min_length=1, max_length=253, pattern=SUBDOMAIN)
    ] = ""
    kind: Annotated[KindName, Field("Its kind.", required=True)] = ""
    name: Annotated[ObjectName, Field("Its name.", required=True)] = ""

    @property
    def defined(self) -> bool:
        return bool(self.api_group and self.kind and self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class TemplateReference(Part):
    """A template in the same namespace, in a fixed version."""

    api_version: Annotated[
        str, Field("Its group and version.", required=True, min_length=1, max_length=317, pattern=_API_VERSION)
    ] = ""
    kind: Annotated[KindName, Field("Its kind.", required=True)] = ""
    name: Annotated[ObjectName, Field("Its name.", required=True)] = ""


class SelectorRequirement(Part):
    """One demand on the labels of an object."""

    key: Annotated[str, Field("The label.", required=True)] = ""
    operator: Annotated[str, Field("In, NotIn, Exists or DoesNotExist.", required=True)] = ""
    values: Annotated[Sequence[str], Field("What In and NotIn compare with.", list_type="atomic")] = ()


class Selector(Part):
    """Selection of objects by their labels: all requirements must hold. Empty selects every object."""

    match_labels: Annotated[Mapping[str, str], Field("Labels with exactly these values.")] = {}
    match_expressions: Annotated[Sequence[SelectorRequirement], Field("Further demands.", list_type="atomic")] = ()

    @property
    def empty(self) -> bool:
        return not self.match_labels and not self.match_expressions

    def compile(self) -> LabelSelector:
        """Raises SelectorError where the selector makes no sense."""
        return label_selector_from(msgspec.to_builtins(self))


class TemplateMetadata(Part):
    """Labels and annotations of what is made from a template."""

    labels: Annotated[Mapping[str, str], Field("Labels to set.")] = {}
    annotations: Annotated[Mapping[str, str], Field("Annotations to set.")] = {}


class ConditionGate(Part):
    """A condition, usually of another program, that counts when the object is judged."""

    condition_type: Annotated[ConditionType, Field("The condition's type.", required=True)] = ""
    polarity: Annotated[
        str, Field("Positive (the default): good is True. Negative: good is False.", enum=("Positive", "Negative"))
    ] = "Positive"


ConditionGates = Annotated[
    Sequence[ConditionGate], Field(list_type="map", list_map_keys=("conditionType",), min_items=1, max_items=32)
]


class MachineTaint(Part):
    """A taint of the Node."""

    key: Annotated[str, Field("The taint's key.", required=True, min_length=1, max_length=317, pattern=_TAINT_KEY)] = ""
    value: Annotated[str, Field("The taint's value.", min_length=1, max_length=63, pattern=_TAINT_VALUE)] = ""
    effect: Annotated[
        str, Field("What it does.", required=True, enum=("NoSchedule", "PreferNoSchedule", "NoExecute"))
    ] = ""
    propagation: Annotated[
        str,
        Field(
            "Always: kept on the Node as it is here. OnInitialization: set once, when the Node appears.",
            required=True,
            enum=("Always", "OnInitialization"),
        ),
    ] = ""


class MachineNaming(Part):
    """How new Machines are named."""

    template: Annotated[
        str,
        Field(
            "A template over .cluster.name, .machineSet.name and .random; {{ .random }} must be part of it.",
            min_length=1,
            max_length=256,
        ),
    ] = ""


class SetDeletion(Part):
    """What happens when there are more Machines than wanted."""

    order: Annotated[str, Field("Which Machines go first; Random if unset.", enum=("Random", "Newest", "Oldest"))] = (
        "Random"
    )


class VersionCount(Part):
    """Number of Machines that run a version."""

    version: Annotated[Version, Field("The Kubernetes version.", required=True)] = ""
    replicas: Annotated[Int32, Field("How many run it.", minimum=1)] = 0


class OldCondition(Part):
    """A condition as the v1beta1 API had it."""

    type: Annotated[str, Field("What it is about.", required=True, min_length=1, max_length=256)] = ""
    status: Annotated[str, Field("True, False or Unknown.", required=True)] = ""
    severity: Annotated[str, Field("Error, Warning or Info.", max_length=32)] = ""
    last_transition_time: Annotated[Time, Field("When the status last changed.", required=True)] = ""
    reason: Annotated[str, Field("Why, in one word.", min_length=1, max_length=256)] = ""
    message: Annotated[str, Field("Why, in a sentence.", min_length=1, max_length=10240)] = ""


OldConditions = Annotated[Sequence[OldCondition], Field("Conditions of the v1beta1 API.")]
OldFailureReason = Annotated[str, Field("A provider's final failure, in one word.")]
OldFailureMessage = Annotated[str, Field("A provider's final failure, in words.", min_length=1, max_length=10240)]
