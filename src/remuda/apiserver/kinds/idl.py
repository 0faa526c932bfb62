"""Type declarations of the built-in kinds: one text file per API group-version under `types/`, parsed at first use.

A file starts with `group NAME/VERSION OPENAPI-PREFIX`. Then come blocks, separated by empty lines:

    kind Deployment           # a message that has apiVersion and kind
    type LabelSelector atomic # any other message; atomic: owned and replaced as a whole
      replicas 1 *int32 =1    # JSON name, protobuf number (0: none), type, flags, description
    enum Protocol TCP UDP     # a string with these values
    list ExtraValue string    # a list that protobuf wraps in a separate message

A type is a scalar, a message of this file, a message of another file (`core.PodSpec`), `[]T` or `map[string]T`. A star
before it means a Go pointer, which distinguishes absent from zero. Flags: `!` is required; `always` is written even if
empty; `inline` puts its fields into the surrounding object; `set` or `key=a,b` says how lists merge; `atomic`; `patch=`
and `by=` for strategic merge patches; `omitzero`; `=value` is the default. Types follow Kubernetes v1.36; descriptions
are our own.

All places that use a type share its `Schema` node, so the graph is cyclic where the types are.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

from remuda.kube.schema import OBJECT_META, UNSET, ListType, Schema

Container = Literal["", "list", "map"]

_MESSAGE_FLAGS = frozenset(("kind", "type"))


class Form(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Type and flags of a field. Identical fields share one. `type` is a scalar's name, or `file.Name` for messages,
    enums and wrapped lists.
    """

    type: str
    container: Container = ""
    pointer: bool = False
    required: bool = False
    always: bool = False
    omitzero: bool = False
    inline: bool = False
    list_type: ListType = "atomic"
    keys: tuple[str, ...] = ()
    atomic: bool = False
    granular: bool = False
    patch: tuple[str, ...] = ()
    merge_key: str = ""
    default: Any = UNSET


class IdlField(msgspec.Struct, frozen=True, eq=False):
    name: str
    number: int  # protobuf field number; 0: none
    form: Form
    description: str


class MessageType(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    file: str  # core, apps, ...: the name that other files use for it
    name: str
    is_kind: bool
    atomic: bool
    description: str
    prefix: str  # prefix of its names in OpenAPI documents
    fields: tuple[IdlField, ...]

    @property
    def ref(self) -> str:
        """Return the name of its schema node: short for meta/v1, as in `kube.schema`, otherwise the OpenAPI name."""
        return self.name if self.file == "meta" else f"{self.prefix}.{self.name}"


SCALARS: dict[str, Schema] = {
    "string": Schema(type="string"),
    "int32": Schema(type="integer", format="int32"),
    "int64": Schema(type="integer", format="int64"),
    "bool": Schema(type="boolean"),
    "double": Schema(type="number", format="double"),
    "bytes": Schema(type="string", format="byte"),
    "Time": Schema(type="string", format="date-time", nullable=True, ref="Time"),
    "MicroTime": Schema(type="string", format="date-time", nullable=True, ref="MicroTime"),
    "Duration": Schema(type="string", ref="Duration"),
    # A quantity may be a string or a number; `canonical_form.py` checks and normalizes it.
    "Quantity": Schema(preserve_unknown=True, ref="Quantity"),
    "IntOrString": Schema(int_or_string=True, ref="IntOrString"),
    "RawExtension": Schema(type="object", preserve_unknown=True, nullable=True, ref="RawExtension"),
    "FieldsV1": Schema(type="object", preserve_unknown=True, ref="FieldsV1"),
    "JSON": Schema(preserve_unknown=True, nullable=True, ref="JSON"),
    "any": Schema(preserve_unknown=True, nullable=True),
    "JSONSchemaPropsOrBool": Schema(preserve_unknown=True),
    "JSONSchemaPropsOrArray": Schema(preserve_unknown=True),
    "JSONSchemaPropsOrStringArray": Schema(preserve_unknown=True),
}


class _File:
    """Parsed header, and the blocks by name. A block becomes a MessageType at its first use."""

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        text = resources.files(__package__).joinpath(f"types/{name}.{version}.idl").read_text("utf-8")
        self._blocks: dict[str, list[str]] = {}
        self._messages: dict[str, MessageType] = {}
        self._forms: dict[str, Form] = {}
        self.enums: dict[str, tuple[str, ...]] = {}
        self.lists: dict[str, str] = {}
        self._prefix = ""
        self._split(text)

    def _split(self, text: str) -> None:
        block: list[str] = []
        for line in text.splitlines():
            if line.startswith("  "):
                block.append(line)
                continue
            if not line:
                continue
            word, _, rest = line.partition(" ")
            if word in _MESSAGE_FLAGS:
                block = self._blocks[rest.split(maxsplit=1)[0]] = [line]
            elif word == "enum":
                name, *values = rest.split()
                self.enums[name] = tuple("" if value == '""' else value for value in values)
            elif word == "list":
                name, element = rest.split()
                self.lists[name] = element
            elif word == "group":
                self._prefix = rest.split()[1]
            else:
                raise ValueError(f"{self.name}: cannot read {line!r}")

    def message(self, name: str) -> MessageType:
        found = self._messages.get(name)
        if found is None:
            found = self._messages[name] = self._parse(name)
        return found

    def messages(self) -> dict[str, MessageType]:
        return {name: self.message(name) for name in self._blocks}

    def _parse(self, name: str) -> MessageType:
        head, *lines = self._blocks[name]
        declaration, _, description = head.partition("#")
        words = declaration.split()
        return MessageType(
            file=self.name,
            name=name,
            is_kind=words[0] == "kind",
            atomic="atomic" in words,
            description=description.strip(),
            prefix=self._prefix,
            fields=tuple(self._field(line) for line in lines),
        )

    def _field(self, line: str) -> IdlField:
        declaration, _, description = line.partition("  # ")
        name, number, declared = declaration.split(None, 2)
        form = self._forms.get(declared)
        if form is None:
            form = self._forms[declared] = self._form(*declared.split())
        return IdlField(name, int(number), form, description)

    def _form(self, given: str, *flags: str) -> Form:
        pointer = given[0] == "*"
        bare = given[1:] if pointer else given
        container: Container = ""
        if bare.startswith("[]"):
            container, bare = "list", bare[2:]
        elif bare.startswith("map[string]"):
            container, bare = "map", bare[11:]
        type_ = bare if bare in SCALARS or "." in bare else self._own(bare)
        options: dict[str, Any] = {}
        for flag in flags:
            options.update(_flag(flag, type_))
        return Form(type=type_, container=container, pointer=pointer, **options)

    def _own(self, name: str) -> str:
        if name == "ObjectMeta":  # every kind has it, so it is written without `meta.`
            return "meta.ObjectMeta"
        if name not in self._blocks and name not in self.enums and name not in self.lists:
            raise ValueError(f"{self.name}: {name} is not declared")
        return f"{self.name}.{name}"


_PLAIN_FLAGS: dict[str, dict[str, Any]] = {
    "!": {"required": True},
    "always": {"always": True},
    "omitzero": {"omitzero": True},
    "inline": {"inline": True},
    "set": {"list_type": "set"},
    "atomic": {"atomic": True},
    "granular": {"granular": True},
}


def _flag(flag: str, type_: str) -> dict[str, Any]:
    if plain := _PLAIN_FLAGS.get(flag):
        return plain
    key, _, value = flag.partition("=")
    match key:
        case "":
            return {"default": _literal(value, type_)}
        case "key":
            return {"list_type": "map", "keys": tuple(value.split(","))}
        case "patch":
            return {"patch": tuple(value.split(","))}
        case "by":
            return {"merge_key": value}
    raise ValueError(f"unknown flag {flag!r}")


def _literal(text: str, type_: str) -> Any:
    if type_ in ("int32", "int64"):
        return int(text)
    if type_ == "bool":
        return text == "true"
    return {} if text == "{}" else text


_FILES = {
    "": "core",
    "meta.k8s.io": "meta",
    "rbac.authorization.k8s.io": "rbac",
}


@cache
def _names() -> frozenset[str]:
    return frozenset(file.name for file in resources.files(__package__).joinpath("types").iterdir())


@cache
def _file(name: str, version: str) -> _File:
    """Return a parsed file. Raise FileNotFoundError if there is none. Clients choose both words, so neither is used in
    a path.
    """
    if f"{name}.{version}.idl" not in _names():
        raise FileNotFoundError(f"there is no {name}.{version}.idl")
    return _File(name, version)


def _file_of(group: str, version: str) -> _File:
    return _file(_FILES.get(group) or group.partition(".")[0], version)


def load(group: str, version: str) -> dict[str, MessageType]:
    """Return every message of a group-version by name. `meta.k8s.io/v1` contains Status, DeleteOptions and the like."""
    return _file_of(group, version).messages()


def message(group: str, version: str, name: str) -> MessageType:
    return _file_of(group, version).message(name)


def resolve(type_: str) -> MessageType | tuple[str, ...] | str | None:
    """Resolve a field's `type` to a message, an enum's values or the element of a wrapped list; None: a scalar."""
    if type_ in SCALARS:
        return None
    name, _, own = type_.partition(".")
    file = _file(name, "v1")
    return file.enums.get(own) or file.lists.get(own) or file.message(own)


# One node per message. A field that adds a default or a description gets a copy that shares the properties.
_nodes: dict[tuple[str, str], Schema] = {}
_form_nodes: dict[Form, Schema] = {}
_TYPE_META = {
    "apiVersion": Schema(type="string", description="The group and version of this kind, as `apps/v1`."),
    "kind": Schema(type="string", description="The name of this kind."),
}


def schema_of(type_: MessageType) -> Schema:
    """Return the single schema node of a message; every message that contains it shares its properties."""
    if type_.file == "meta" and type_.name == "ObjectMeta":
        return OBJECT_META
    key = (type_.file, type_.name)
    node = _nodes.get(key)
    if node is None:
        node = _nodes[key] = Schema(
            type="object",
            ref=type_.ref,
            description=type_.description,
            map_type="atomic" if type_.atomic else "granular",
            required=tuple(_required(type_)),
            properties=dict(_TYPE_META) if type_.is_kind else {},
        )
        _fill(node.properties, type_)
    return node


def _required(type_: MessageType) -> list[str]:
    names = []
    for field in type_.fields:
        if field.form.inline:
            names += _required(_inlined(field))
        elif field.form.required:
            names.append(field.name)
    return names


def _inlined(field: IdlField) -> MessageType:
    found = resolve(field.form.type)
    if not isinstance(found, MessageType):
        raise ValueError(f"{field.name}: only a message can be inline")
    return found


def _fill(properties: dict[str, Schema], type_: MessageType) -> None:
    for field in type_.fields:
        if field.form.inline:
            _fill(properties, _inlined(field))
        else:
            node = _form_schema(field.form)
            if field.description:
                node = msgspec.structs.replace(node, description=field.description)
            properties[field.name] = node


def _form_schema(form: Form) -> Schema:
    node = _form_nodes.get(form)
    if node is None:
        node = _form_nodes[form] = _build(form)
    return node


def _build(form: Form) -> Schema:
    element = _element_schema(form.type)
    if form.container == "list":
        return Schema(
            type="array",
            items=element,
            list_type=form.list_type,
            list_map_keys=form.keys,
            patch_strategy=form.patch,
            patch_merge_key=form.merge_key,
        )
    if form.container == "map":
        return Schema(
            type="object",
            additional=element,
            map_type="atomic" if form.atomic else "granular",
            patch_strategy=form.patch,
        )
    return _with_flags(element, form)


def _element_schema(type_: str) -> Schema:
    found = resolve(type_)
    if found is None:
        return SCALARS[type_]
    if isinstance(found, MessageType):
        return schema_of(found)
    if isinstance(found, str):
        return _wrapped_list(found)
    return _enumeration(found)


@cache
def _wrapped_list(element: str) -> Schema:
    return Schema(type="array", items=SCALARS[element])


@cache
def _enumeration(values: tuple[str, ...]) -> Schema:
    return Schema(type="string", enum=values)


def _with_flags(element: Schema, form: Form) -> Schema:
    """Return the shared node, or a copy with the additions of the flags."""
    changes: dict[str, Any] = {}
    default = _implied_default(form, element)
    if default is not UNSET:
        changes["default"] = default
    if form.patch:
        changes["patch_strategy"] = form.patch
    if form.atomic:
        changes["map_type"] = "atomic"
    elif form.granular:
        changes["map_type"] = "granular"
    return msgspec.structs.replace(element, **changes) if changes else element


_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


def _implied_default(form: Form, element: Schema) -> Any:
    """Return the declared default, or the zero that kube-apiserver writes for a field without omitempty."""
    if form.default is not UNSET:
        return form.default
    if form.pointer or element is OBJECT_META:
        return UNSET
    if isinstance(resolve(form.type), MessageType):
        return {}
    return _ZERO.get(element.type, UNSET) if form.always and not element.nullable else UNSET
