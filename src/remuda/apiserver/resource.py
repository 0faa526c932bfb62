"""Declaration of a served resource: everything that distinguishes it from others.

A built-in kind is one `Resource` value in `apiserver.kinds`; a CustomResourceDefinition becomes one `Resource` per
served version. The verbs in `registry.py` know no kind by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from remuda.kube.cost import LIMITS, RequestLimits
from remuda.kube.errors import FieldError
from remuda.kube.schema import Schema

Obj = dict[str, Any]
Path = tuple[str, ...]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """Column of `kubectl get`: either a JSONPath or a function of the decoded object."""

    name: str
    type: str = "string"  # string, integer, number, boolean, date
    format: str = ""
    description: str = ""
    priority: int = 0  # above 0: only with -o wide
    path: str = ""
    cell: Callable[[Obj], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    spec_replicas: Path
    status_replicas: Path
    selector: Path = ()  # path of a string selector in status; empty: none


def _nothing(new: Obj) -> None: ...
def _nothing_updated(new: Obj, old: Obj) -> None: ...
def _not_held(obj: Obj) -> bool:
    return False


def _not_slow(obj: Obj) -> bool:
    return False


def _no_errors(new: Obj) -> list[FieldError]:
    return []


def _no_update_errors(new: Obj, old: Obj) -> list[FieldError]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Behaviour of a kind beyond its schema. All functions are pure, but the prepare functions may change `new`.

    They run in this order on every write: schema defaults, `default`, (field ownership is recorded), prepare,
    admission, validate. `validate_update` runs in addition to `validate`. The writer owns the fields that `default`
    sets, as it owns schema defaults; nobody owns the fields that prepare sets.
    """

    default: Callable[[Obj], None] = _nothing
    prepare_create: Callable[[Obj], None] = _nothing
    prepare_update: Callable[[Obj, Obj], None] = _nothing_updated
    validate: Callable[[Obj], list[FieldError]] = _no_errors
    # Whether validation of this object is so slow that it runs in a thread (large CRDs are compiled)
    is_slow: Callable[[Obj], bool] = _not_slow
    validate_create: Callable[[Obj], list[FieldError]] = _no_errors  # in addition to validate, on new objects
    validate_update: Callable[[Obj, Obj], list[FieldError]] = _no_update_errors
    validate_name: Callable[[str, bool], list[str]] | None = (
        None  # (name, is_prefix) -> complaints; None: DNS subdomain
    )
    # status subresource only; runs instead of validate_update
    validate_status: Callable[[Obj, Obj], list[FieldError]] = _no_update_errors
    # (object, requested grace period) -> seconds until another component finishes the delete; None: delete at once
    graceful_seconds: Callable[[Obj, int | None], int | None] | None = None
    # what a delete writes into the object before it waits (namespaces: phase; CRDs: a condition and a finalizer)
    prepare_delete: Callable[[Obj], None] = _nothing
    # whether it must wait for more than metadata.finalizers (namespaces: spec.finalizers)
    is_held: Callable[[Obj], bool] = _not_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """Subresource with its own handler (token, eviction, log, finalize, approval, ...), as discovery shows it.

    The handler is registered with the registry under (table, subresource name).
    """

    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    schema: Schema | None = None  # schema of the handler's input; None: the resource's own
    decodes: bool = False  # whether the handler decodes and checks the body itself


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resource:
    group: str
    version: str
    kind: str
    plural: str
    schema: Schema  # schema of the whole object, including metadata
    singular: str = ""
    list_kind: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    # Zero value of a built-in kind; no manager owns its fields.
    blank: Obj | None = None
    # Fields that a write to /status does not change, besides everything outside metadata and status.
    status_leaves: tuple[str, ...] = ("metadata", "spec")
    has_status: bool = False  # has a status subresource: other writes keep status, and the reverse
    keeps_status_on_create: bool = False  # nodes register with their status in one write
    scale: ScalePaths | None = None
    has_generation: bool = True  # +1 on every change outside metadata and status
    columns: tuple[TableColumn, ...] = ()  # empty: NAME and AGE
    selectable: Mapping[str, Path] = field(default_factory=dict)  # field selectors besides metadata.name/namespace
    # value of an absent field in comparisons, if not ""
    selectable_zero: Mapping[str, str] = field(default_factory=dict)
    behaviour: Behaviour = field(default_factory=Behaviour)
    custom: bool = False  # from a CRD: type errors are 422, and its schema prunes unknown fields
    storage_version: str = ""  # the version on disk, if it is not `version`
    to_storage: Callable[[Obj], Obj] | None = None  # None with a storage_version: only apiVersion differs
    from_storage: Callable[[Obj], Obj] | None = None
    table_name: str = ""  # if two groups share one store (events); else `plural.group`
    named_group: str | None = None  # group in error messages, if two groups share one kind; else `group`
    deprecation_warning: str = ""
    discovered_verbs: tuple[str, ...] = ()  # order of verbs in discovery; empty: `verbs` in alphabetical order
    plain_finalizers: bool = False  # finalizers need no domain
    closed: str = ""  # why no object may be created, if so (its definition is being deleted)
    allow_unconditional_update: bool = True  # an update without resourceVersion overwrites
    allow_create_on_update: bool = False
    returns_deleted: bool = False  # a completed delete answers with the object instead of a Status
    default_propagation: Literal["Background", "Orphan"] = "Background"
    collects_garbage: bool = True  # False (events): propagation policies have no effect
    subresources: Mapping[str, Subresource] = field(default_factory=dict)  # besides status and scale
    limits: RequestLimits = LIMITS  # limits of each request

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def table(self) -> str:
        return self.table_name or (f"{self.plural}.{self.group}" if self.group else self.plural)

    @property
    def group_in_complaints(self) -> str:
        return self.group if self.named_group is None else self.named_group

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural
