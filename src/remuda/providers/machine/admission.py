"""Admission of NodeDrivers: a driver that could never have valid kinds is denied."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from remuda.capi.admission.rules import admission
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.errors import FieldError, forbidden, invalid, required
from remuda.providers.machine.catalogue import LOCAL
from remuda.providers.shared.types.machine import NODE_DRIVER, NodeDriver

_NAME = re.compile(r"[a-z][a-z0-9]{0,40}")
_SCHEMES = ("https", "http", "file", "")


def complaints(driver: NodeDriver) -> list[FieldError]:
    return [*_name(driver), *_url(driver)]


def _name(driver: NodeDriver) -> list[FieldError]:
    name = driver.metadata.name
    if not _NAME.fullmatch(name):
        why = (
            "must be lower-case letters and digits, starting with a letter: it is the driver's name, and its kinds "
            "are named after it"
        )
        return [invalid("metadata.name", name, why)]
    shown = driver.spec.display_name
    if shown and shown.lower() != name:
        return [invalid("spec.displayName", shown, f"must be the driver's name, {name}: its kinds are named after it")]
    return []


def _url(driver: NodeDriver) -> list[FieldError]:
    url = driver.spec.url
    if url in ("", LOCAL):
        return []
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [invalid("spec.url", url, str(error))]
    if parts.scheme not in _SCHEMES or (not parts.scheme and not url.startswith("/")):
        return [invalid("spec.url", url, "must be local://, the path of a program, or an https URL")]
    if parts.password or parts.username:
        return [
            forbidden(
                "spec.url", "must not contain a user or a password: everyone who can read NodeDrivers would see it"
            )
        ]
    if parts.scheme == "http" and not driver.spec.checksum:
        return [required("spec.checksum", "a download over http:// needs its sha256")]
    return []


FUNCTIONS: list[AdmissionRegistration] = [
    AdmissionRegistration(NODE_DRIVER.group, NODE_DRIVER.plural, admission(NODE_DRIVER, complaints=complaints)),
]
