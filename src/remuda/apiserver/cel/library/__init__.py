"""Every function that an expression may call: CEL's standard ones, cel-go's extensions and Kubernetes' own libraries.

The set is what a CRD may use at Kubernetes 1.36. To add a function, declare it in the module of its noun.
"""

from __future__ import annotations

from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.functions import Overload
from remuda.apiserver.cel.library import (
    arithmetic,
    collections,
    conversions,
    k8s_lists,
    lists,
    named_formats,
    networks,
    optionals,
    quantity,
    regex,
    relations,
    semver,
    strings,
    timestamps,
    urls,
)
from remuda.apiserver.cel.types import Type

FUNCTIONS: dict[str, list[Overload]] = {}
for _module in (
    relations,
    arithmetic,
    collections,
    conversions,
    strings,
    timestamps,
    optionals,
    regex,
    k8s_lists,
    lists,
    urls,
    networks,
    quantity,
    named_formats,
    semver,
):
    for _overload in _module.LIBRARY.overloads:
        FUNCTIONS.setdefault(_overload.function, []).append(_overload)

# Names that denote a type when they are used alone.
TYPE_NAMES: dict[str, Type] = {
    given.name: given
    for given in (
        t.BOOL,
        t.BYTES,
        t.DOUBLE,
        t.DURATION,
        t.INT,
        t.NULL,
        t.STRING,
        t.TIMESTAMP,
        t.TYPE,
        t.UINT,
        t.list_of(t.DYN),
        t.map_of(t.DYN, t.DYN),
        t.optional_of(t.DYN),
        t.opaque("kubernetes.URL"),
        t.opaque("kubernetes.Quantity"),
        t.opaque("kubernetes.Semver"),
        t.opaque("kubernetes.NamedFormat"),
        t.opaque("net.IP"),
        t.opaque("net.CIDR"),
    )
}
