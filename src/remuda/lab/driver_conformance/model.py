"""Conformance tests of a driver's description of itself, from which schemas, flags and docs are generated."""

from __future__ import annotations

import re
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from remuda.kube.objects import Field
from remuda.lab.driver_conformance.subject import Subject
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers.spi import Options

_DRIVER_NAME = re.compile("[a-z][a-z0-9]{0,56}")
_JSON_NAME = re.compile("[a-z][A-Za-z0-9]*")
_NOT_OPTIONS = {"common", "providerID"}  # fields beside the options in the spec of a machine


def _fields(options: type[Any]) -> dict[str, tuple[Field | None, Any]]:
    """Return the schema and the default of each field, by JSON name."""
    hints = get_type_hints(options, include_extras=True)
    found: dict[str, tuple[Field | None, Any]] = {}
    for field in msgspec.structs.fields(options):
        hint = hints[field.name]
        said = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        found[field.encode_name] = (next((part for part in said if isinstance(part, Field)), None), default)
    return found


def _complaint(field: Field, value: Any) -> str:
    """Return why the default is not a valid value, or an empty string; required fields have no default."""
    if field.required:
        return ""
    if field.enum and value not in field.enum:
        return f"is none of {field.enum}"
    if isinstance(value, str):
        if field.pattern and not re.search(field.pattern, value):
            return f"does not match {field.pattern}"
        if len(value) < (field.min_length or 0) or len(value) > (field.max_length or len(value)):
            return "is too short or too long"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if field.minimum is not None and value < field.minimum:
            return f"is less than {field.minimum}"
        if field.maximum is not None and value > field.maximum:
            return f"is more than {field.maximum}"
    return ""


class Model:
    async def test_driver_is_found_by_its_name(self, subject: Subject) -> None:
        assert _DRIVER_NAME.fullmatch(subject.driver.name)
        assert drivers.find(subject.driver.name) is subject.driver
        assert subject.driver.doc.strip().endswith("."), "the doc is at least a sentence"

    async def test_every_option_has_documentation_and_json_name(self, subject: Subject) -> None:
        assert issubclass(subject.driver.options_type, Options)
        for name, (field, _) in _fields(subject.driver.options_type).items():
            assert _JSON_NAME.fullmatch(name), f"{name} is not in camelCase"
            assert name not in _NOT_OPTIONS, f"{name} means something else in the spec of a machine"
            assert field is not None and field.doc.endswith("."), f"{name} has no doc"  # noqa: PT018

    async def test_every_default_is_a_valid_value(self, subject: Subject) -> None:
        options = subject.driver.options_type
        plain = msgspec.to_builtins(options())
        assert msgspec.convert(plain, options) == options()
        for name, (field, default) in _fields(options).items():
            complaint = _complaint(field, default) if field is not None else ""
            assert not complaint, f"the default of {name} {complaint}"

    async def test_credentials_map_to_existing_secret_options(self, subject: Subject) -> None:
        fields = _fields(subject.driver.options_type)
        assert set(subject.driver.credential_fields) <= set(fields)
        secret = [name for name in subject.driver.credential_fields if getattr(fields[name][0], "format", "")]
        assert secret or not subject.driver.credential_fields, "none of the credentials is marked as a secret"

    async def test_suite_options_belong_to_the_model(self, subject: Subject) -> None:
        unknown = set(subject.options) - set(_fields(subject.driver.options_type))
        assert not unknown, f"no such options: {sorted(unknown)}"
