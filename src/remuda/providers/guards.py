"""Admission of objects that use drivers and credentials: the rights that their author needs, and who that author is.

Kinds of drivers are installed and removed at run time, so two of the guards cover every kind of a group. They are
separate from the kinds' own admission, because they apply to every write, even one that changes only metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube.admission import (
    EVERY_KIND,
    AdmissionFunction,
    AdmissionRegistration,
    AdmissionResult,
    Needs,
    Operation,
    Review,
    all_needs,
    allow,
)
from remuda.kube.authorization import RequiredAccess
from remuda.kube.client import Target
from remuda.kube.core import SECRETS
from remuda.kube.objects import value_at
from remuda.providers.machine import addresses
from remuda.providers.shared import author, names
from remuda.providers.shared.restriction import by_infrastructure, by_kind, by_reference, uses_driver
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.runtime.webhooks import Webhook

_OPERATIONS: tuple[Operation, ...] = ("CREATE", "UPDATE")


class Guarded(msgspec.Struct, frozen=True):
    """A resource whose writes need rights."""

    name: str  # of its webhook
    target: Target
    needs: Needs
    function: AdmissionFunction = allow


def registrations(guarded: Iterable[Guarded]) -> list[AdmissionRegistration]:
    return [
        AdmissionRegistration(one.target.group, one.target.plural, one.function, _OPERATIONS, one.needs)
        for one in guarded
    ]


def webhooks(guarded: Iterable[Guarded]) -> list[Webhook]:
    """Return the webhooks that do the same on an API server elsewhere."""
    return [
        Webhook(
            kind=f"{one.name}-rights",
            target=one.target,
            function=one.function,
            operations=_OPERATIONS,
            needs=one.needs,
            except_manager=True,
        )
        for one in guarded
    ]


def refers_to_bootstrap_data(review: Review) -> list[RequiredAccess]:
    """Return the rights to the bootstrap Secrets that a Machine, or a set of them, newly names. The Secret ends up on a
    server that the user chooses."""
    if review.subresource or review.new is None or review.by_manager:
        return []
    known = {access.right for access in _data_secrets(review, review.old)}
    return [access for access in _data_secrets(review, review.new) if access.right not in known]


def _data_secrets(review: Review, obj: dict[str, Any] | None) -> Iterator[RequiredAccess]:
    for path in (("spec",), ("spec", "template", "spec")):
        where = (*path, "bootstrap", "dataSecretName")
        if name := value_at(obj, *where):
            yield RequiredAccess(
                verb="get",
                group="",
                resource=SECRETS.plural,
                namespace=review.namespace,
                name=str(name),
                field=".".join(where),
            )


def _both(first: AdmissionFunction, second: AdmissionFunction) -> AdmissionFunction:
    """Return a function that has the errors of the first and the patch of the second."""

    def admit(review: Review) -> AdmissionResult:
        return msgspec.structs.replace(second(review), errors=first(review).errors)

    return admit


GUARDED = (
    Guarded("MachineConfig", Target(names.CONFIG_API_VERSION, EVERY_KIND), uses_driver(by_kind), addresses.admit),
    Guarded(
        "DriverMachine",
        Target(names.MACHINE_API_VERSION, EVERY_KIND),
        all_needs(uses_driver(by_kind), author.uses_credentials(author.of_driver_machine)),
        _both(addresses.admit, author.records_author(author.of_driver_machine)),
    ),
    Guarded(
        RKE_CLUSTER.name,
        RKE_CLUSTER.target,
        all_needs(uses_driver(by_infrastructure), author.uses_credentials(author.of_infrastructure)),
        author.records_author(author.of_infrastructure),
    ),
)
# Of Cluster API, where its core is ours: with a template that is there, they make machines.
GUARDED_CORE = tuple(
    Guarded(kind.name, kind.target, all_needs(uses_driver(by_reference), refers_to_bootstrap_data))
    for kind in (MACHINE, MACHINE_SET, MACHINE_DEPLOYMENT)
)
