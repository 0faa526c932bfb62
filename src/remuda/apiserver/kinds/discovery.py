"""The discovery group: EndpointSlices."""

from __future__ import annotations

import ipaddress
from typing import Any

from remuda.apiserver.kinds.columns import AGE, NAME, at, some_of, string, value
from remuda.apiserver.kinds.declare import Rules, declare, one_of, unchanged
from remuda.apiserver.kinds.pod_spec import PROTOCOLS
from remuda.apiserver.resource import Obj
from remuda.kube import errors, names
from remuda.kube.errors import FieldError

_MOST_ENDPOINTS = 1000
_MOST_ADDRESSES = 100
_BAD_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def _validate(slice_: Obj) -> list[FieldError]:
    type_ = slice_.get("addressType") or ""
    found = one_of(type_, "addressType", ("FQDN", "IPv4", "IPv6")) if type_ else [errors.required("addressType")]
    for index, port in enumerate(slice_.get("ports") or ()):
        found += one_of(port.get("protocol"), f"ports[{index}].protocol", PROTOCOLS)
        if name := port.get("name"):
            found += [errors.invalid(f"ports[{index}].name", name, why) for why in names.dns1123_label(name)]
    endpoints = slice_.get("endpoints") or []
    if len(endpoints) > _MOST_ENDPOINTS:
        return [*found, errors.too_many("endpoints", len(endpoints), _MOST_ENDPOINTS)]
    for index, endpoint in enumerate(endpoints):
        found += _address_errors(endpoint.get("addresses") or [], type_, f"endpoints[{index}].addresses")
    return found


def _address_errors(addresses: list[str], type_: str, path: str) -> list[FieldError]:
    if not addresses:
        return [errors.required(path, "must contain at least 1 address")]
    if len(addresses) > _MOST_ADDRESSES:
        return [errors.too_many(path, len(addresses), _MOST_ADDRESSES)]
    found: list[FieldError] = []
    for index, address in enumerate(addresses):
        found += _one_address_errors(address, type_, path, index)
    return found


def _one_address_errors(address: str, type_: str, path: str, index: int) -> list[FieldError]:
    if type_ not in ("IPv4", "IPv6"):
        return []
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return [errors.invalid(f"{path}[{index}]", address, _BAD_ADDRESS)]
    return [] if type_ == f"IPv{version}" else [errors.invalid(path, address, f"must be an {type_} address")]


def _ports(slice_: Obj) -> str:
    def one(port: Obj) -> str:
        return str(port.get("port") or port.get("name") or "*")

    return some_of(one(port) for port in slice_.get("ports") or ()) if slice_.get("ports") else "<unset>"


def _addresses(slice_: Obj) -> str:
    def listed() -> Any:
        for endpoint in at(slice_, "endpoints", default=()):
            yield from endpoint.get("addresses") or ()

    return some_of(listed()) if slice_.get("endpoints") else "<unset>"


ENDPOINT_SLICES = declare(
    "discovery.k8s.io",
    "v1",
    "EndpointSlice",
    "endpointslices",
    Rules(validate=_validate, validate_update=lambda new, old: unchanged(new, old, "addressType")),
    columns=(
        NAME,
        string("AddressType", value("addressType")),
        string("Ports", _ports),
        string("Endpoints", _addresses),
        AGE,
    ),
)

RESOURCES = (ENDPOINT_SLICES,)
