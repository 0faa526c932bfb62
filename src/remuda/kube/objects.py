"""Typed views of objects: one msgspec struct per kind, decoded from JSON bytes, and the source of its CRD schema.

A struct is for reading. It drops unknown fields, so it is never written back whole: writers patch the raw JSON
(`runtime.draft`) or apply the fields they own. Every field has a default, because controllers must be able to read
objects that admission has not seen. `Field` declares the requirements of the schema; msgspec ignores it when it
decodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, dataclass_transform, get_args

import msgspec

from remuda.kube.client import Target
from remuda.kube.schema import ListType, MapType, Rule


def json_name(name: str) -> str:
    """Return the JSON name of a field: `provider_id` → providerID, `cidr_blocks` → cidrBlocks."""
    first, *rest = name.split("_")
    return first + "".join("ID" if part == "id" else part.capitalize() for part in rest)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=json_name):
    """Base of every struct that is part of an object. The docstring of a subclass is its description in the schema."""


class Field(msgspec.Struct, frozen=True):
    """Schema of a field besides its Python type: `Annotated[str, Field("What it is.", min_length=1)]`.

    On a list, `items` describes its items; on a map, its values.
    """

    doc: str = ""
    required: bool = False
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    enum: tuple[Any, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    list_type: ListType | None = None
    list_map_keys: tuple[str, ...] = ()
    map_type: MapType | None = None
    format: str = ""
    int_or_string: bool = False
    preserve_unknown: bool = False
    default: Any = msgspec.UNSET
    rules: tuple[Rule, ...] = ()
    items: Field | None = None


class OwnerReference(Part):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


class ObjectMeta(Part):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: Sequence[OwnerReference] = ()
    finalizers: Sequence[str] = ()

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages the object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def owner(self, kind: str, group: str) -> OwnerReference | None:
        """Return the first owner of that kind, in any version."""
        return next((owner for owner in self.owner_references if owner.kind == kind and owner.group == group), None)


class Key(NamedTuple):
    """Namespace and name of an object: the item type of a work queue."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Object(Part):
    """Fields that every object has; the view of an object of any kind."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        return self.metadata.key


ConditionStatus = Literal["True", "False", "Unknown"]


_CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_CONDITION_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


class Condition(Part):
    """Condition of the object."""

    # `metav1.Condition`: reason and message are written even when empty, because real schemas require the keys. Any
    # status is accepted when reading, because providers do not all follow the enum.
    type: Annotated[str, Field("Type of the condition.", required=True, max_length=316, pattern=_CONDITION_TYPE)] = ""
    status: Annotated[str, Field("Status of the condition.", required=True, enum=get_args(ConditionStatus))] = "Unknown"
    reason: Annotated[
        str, Field("Reason in one word.", required=True, min_length=1, max_length=1024, pattern=_CONDITION_REASON)
    ] = ""
    message: Annotated[str, Field("Message for users; may be empty.", required=True, max_length=32768)] = ""
    last_transition_time: Annotated[
        str, Field("Time at which the status last changed.", required=True, format="date-time")
    ] = ""
    observed_generation: Annotated[int, Field("Generation from which it was derived.", format="int64", minimum=0)] = 0


T = TypeVar("T", bound=Object)


class Kind(Generic[T]):
    """Kind in one version: where its objects are found and their type."""

    __slots__ = ("_decoder", "api_version", "name", "namespaced", "plural", "target", "type")

    def __init__(self, api_version: str, name: str, plural: str, type: type[T], *, namespaced: bool = True) -> None:
        self.api_version = api_version
        self.name = name
        self.plural = plural
        self.type = type
        self.namespaced = namespaced
        self.target = Target(api_version, plural)
        self._decoder = msgspec.json.Decoder(type)

    @property
    def group(self) -> str:
        return self.target.group

    def decode(self, value: bytes) -> T:
        try:
            return self._decoder.decode(value)
        except msgspec.ValidationError:
            return self._decode_without_nulls(value)

    def _decode_without_nulls(self, value: bytes) -> T:
        """Decode an object after removing nulls. Kubernetes treats null as absent: its servers write an unset time or
        list as null. That is rare, so only objects that fail to decode are searched for nulls.
        """
        return msgspec.convert(without_nulls(msgspec.json.decode(value)), self.type)

    def __repr__(self) -> str:
        return f"<{self.name} {self.api_version}>"


def value_at(obj: Any, *path: str) -> Any:
    """Return the value at a path of an unvalidated object; None if a part of the path is no object."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value
