"""Model of a driver's options: the only source of its CRD schemas, flags and documentation.

Our drivers define their options as a Part (`spi.Options`); a driver that is a program reports its flags. Both become
the same model. Option names are those of rancher-machine, so that existing manifests and flags fit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.kube.definitions import schema
from remuda.providers import ProviderError
from remuda.providers.shared.drivers.spi import Driver

FlagType = Literal["string", "integer", "boolean", "strings"]
PASSWORD = "password"  # noqa: S105  the format of an option nobody may see

# Flags with these names hold a secret: drivers cannot mark a flag as secret.
_SECRET = re.compile(
    r"sshKeyContents|sshKey|privateKey(File|Contents)?|rootPass|.*(password|secret|secretKey|token)", re.I
)
_NAME = re.compile(r"[a-z][A-Za-z0-9]*")
_RESERVED = frozenset({"common", "providerID", "apiVersion", "kind", "metadata", "spec", "status"})


class BadModel(ProviderError):
    """Invalid description of a driver's options: no schema can be generated from it. The text says why."""


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag as a driver's program reports it."""

    name: str  # "digitalocean-access-token"
    type: FlagType
    doc: str = ""
    default: Any = None
    secret: bool = False
    env: str = ""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # in JSON: "accessToken"
    flag: str  # "--digitalocean-access-token"
    schema: Mapping[str, Any]  # structural, with its description, without its default
    default: Any = None  # None: no default
    secret: bool = False
    required: bool = False

    @property
    def doc(self) -> str:
        return str(self.schema.get("description", ""))

    @property
    def type(self) -> str:
        """Return the type as shown to users."""
        return _type(self.schema)


class OptionModel(msgspec.Struct, frozen=True, kw_only=True):
    driver: str
    doc: str
    options: tuple[Option, ...]
    credentials: tuple[str, ...] = ()  # options that a credential Secret may bring instead
    files: Mapping[str, str] = {}  # options with the content of a file → the program's option for its path

    def properties(self, *, defaults: bool) -> dict[str, Any]:
        """Return properties of a structural schema. Only the Config has defaults: objects made from it contain them."""
        found = {}
        for option in self.options:
            with_default = defaults and option.default is not None
            found[option.name] = {**option.schema, "default": option.default} if with_default else dict(option.schema)
        return found

    @property
    def required(self) -> list[str]:
        """Return the required options, without those that a credential may supply."""
        return [option.name for option in self.options if option.required and option.name not in self.credentials]

    def find(self, name: str) -> Option | None:
        return next((option for option in self.options if option.name == name), None)


# ---- from our drivers ----------------------------------------------------------------------------------------------


def of_driver(driver: type[Driver[Any]]) -> OptionModel:
    """Raises BadModel."""
    shape = schema(driver.options_type)
    demanded = shape.get("required", ())
    defaults = _defaults(driver.options_type)
    options = tuple(
        _option(driver.name, name, dict(found), defaults.get(name), required=name in demanded)
        for name, found in shape.get("properties", {}).items()
    )
    known = {option.name for option in options}
    if unknown := [name for name in driver.credential_fields if name not in known]:
        raise BadModel(f"driver {driver.name} reads {', '.join(unknown)} from credentials, but has no such option")
    return OptionModel(driver=driver.name, doc=driver.doc, options=options, credentials=driver.credential_fields)


def _option(driver: str, name: str, found: dict[str, Any], default: Any, *, required: bool) -> Option:
    _check_name(driver, name)
    said = found.pop("default", None)
    return Option(
        name=name,
        flag=f"--{driver}-{kebab(name)}",
        schema=found,
        default=default if said is None else said,
        secret=found.get("format") == PASSWORD,
        required=required,
    )


def _defaults(options: type[Any]) -> dict[str, Any]:
    """Return the defaults of options; empty defaults are left out."""
    made = options()
    values = {field.encode_name: getattr(made, field.name) for field in msgspec.structs.fields(options)}
    return {name: msgspec.to_builtins(value) for name, value in values.items() if value}


# ---- from the flags of a program -----------------------------------------------------------------------------------


def of_flags(
    driver: str,
    flags: Sequence[Flag],
    *,
    doc: str = "",
    credentials: Collection[str] = (),
    passwords: Collection[str] = (),
    files: Mapping[str, str] | None = None,
) -> OptionModel:
    """Return the model. `files`: option in the schema → option of the program. Raise BadModel."""
    aliases = {program: name for name, program in (files or {}).items()}
    options: dict[str, Option] = {}
    for flag in flags:
        reported = camel(_without_prefix(driver, flag.name))
        name = aliases.get(reported, reported)
        _check_name(driver, name)
        secret = flag.secret or name in passwords or _SECRET.fullmatch(name) is not None
        options[name] = Option(
            name=name,
            flag=f"--{flag.name}",
            schema=_flag_schema(flag, secret),
            default=_flag_default(flag),
            secret=secret,
        )
    return OptionModel(
        driver=driver,
        doc=doc,
        options=tuple(options[name] for name in sorted(options)),
        credentials=tuple(name for name in sorted(credentials) if name in options),
        files=dict(files or {}),
    )


def _without_prefix(driver: str, flag: str) -> str:
    """Return a flag without the driver's name, which is everything up to the first dash."""
    prefix, dash, rest = flag.partition("-")
    if not dash or not rest:
        raise BadModel(f"driver {driver} has a flag {flag!r} with no name after the prefix {prefix!r}")
    return rest


def _flag_schema(flag: Flag, secret: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"description": flag.doc} if flag.doc else {}
    if flag.type == "boolean":
        return {"type": "boolean", **found}
    if flag.type == "strings":
        return {"type": "array", "items": {"type": "string"}, "nullable": True, **found}
    if flag.type == "integer":  # Rancher has them as text, so both are accepted
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": "^(-?[0-9]+)?$",
            **found,
        }
    return {"type": "string", **found, **({"format": PASSWORD} if secret else {})}


def _flag_default(flag: Flag) -> Any:
    if not flag.default:
        return None
    if flag.type == "integer":
        return str(flag.default)
    return list(flag.default) if flag.type == "strings" else flag.default


# ---- names ---------------------------------------------------------------------------------------------------------


def _check_name(driver: str, name: str) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise BadModel(f"driver {driver} has an option {name!r}, which is not a valid field name")


def camel(kebab_name: str) -> str:
    """ssh-user → sshUser."""
    first, *rest = [part for part in kebab_name.split("-") if part] or [""]
    return first[:1].lower() + first[1:] + "".join(part[:1].upper() + part[1:] for part in rest)


def kebab(name: str) -> str:
    """sshUser → ssh-user: a break before each capital."""
    return re.sub(r"(?<!^)([A-Z])", r"-\1", name).lower()


def _type(found: Mapping[str, Any]) -> str:
    if found.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if enum := found.get("enum"):
        return " or ".join(f"`{one}`" for one in enum)
    kind = str(found.get("type", "anything"))
    if kind == "array":
        return f"list of {_plural(_type(found.get('items', {})))}"
    if kind == "object" and "additionalProperties" in found:
        return f"map of {_plural(_type(found['additionalProperties']))}"
    return kind


def _plural(kind: str) -> str:
    return f"{kind}s" if kind.isalpha() else kind
