"""Deny clusters whose hosts could never call back, where hosts are told a loopback address of the manager.

`remuda up` listens on loopback by default, which is enough for hosts on the same machine. A server elsewhere would be
created, run its bootstrap script and never register. Only Configs that are there are judged: the dry run of a manifest
cannot see those that it brings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda.capi import inflection
from remuda.capi.admission.rules import read
from remuda.kube.admission import ALLOWED, AdmissionRegistration, AdmissionResult, Review, Unseen
from remuda.kube.errors import FieldError, forbidden
from remuda.providers.shared import drivers, names, restriction
from remuda.providers.shared.jobs.settings import out_of_reach
from remuda.provisioning.admission.policy import options, pools_of
from remuda.provisioning.generate import takes_config
from remuda.provisioning.types import CLUSTER, Cluster, MachinePool

Json = dict[str, Any]


def registrations(only_here: str) -> tuple[AdmissionRegistration, ...]:
    """Return the admission for a manager whose URL for hosts is `only_here`, a loopback address. Empty: none."""

    def admit(review: Review) -> AdmissionResult:
        old, new = read(CLUSTER, review.old), read(CLUSTER, review.new)
        if review.subresource or review.by_manager or new is None or new.metadata.deleting:
            return ALLOWED
        return AdmissionResult(errors=tuple(_errors(review, old, new, only_here)))

    return (AdmissionRegistration(CLUSTER.group, CLUSTER.plural, admit),) if only_here else ()


def _errors(review: Review, old: Cluster | None, new: Cluster, only_here: str) -> Iterator[FieldError]:
    """Judge pools that the write adds: those of an existing cluster may be scaled and edited."""
    known = {pool.name for pool in pools_of(old)} if old is not None else set()
    for index, pool in enumerate(pools_of(new)):
        if pool.name not in known and (driver := _unreachable(review, pool)):
            path = f"spec.rkeConfig.machinePools[{index}].machineConfigRef"
            yield forbidden(path, out_of_reach(driver, only_here))


def _unreachable(review: Review, pool: MachinePool) -> str:
    """Return the driver of a pool whose hosts have another loopback than the manager; else an empty string."""
    reference = pool.machine_config_ref
    if reference is None or not takes_config(pool):
        return ""
    name = restriction.driver_of_kind(reference.kind)
    if name not in drivers.names():
        return ""
    try:
        plural = inflection.plural(reference.kind.lower())
        config = review.lookup(names.CONFIG_API_VERSION, plural, review.namespace, reference.name)
        driver = drivers.find(name)
    except (Unseen, drivers.NoSuchDriver):
        return ""
    return name if config is not None and not driver.shares_loopback(options(config)) else ""
