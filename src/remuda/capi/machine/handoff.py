"""Exchange of data between a Machine and its providers: the name of the bootstrap data, and facts about the server.

Only fields of the contract are copied. A step that was once reported as complete stays complete, whatever a provider
reports later. A server is never created a second time: if its object is deleted, a condition reports it, and the
Machine waits until the user deletes it.
"""

from __future__ import annotations

from typing import Any

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.machine.ownership import take_over
from remuda.capi.machine.scope import MachineDependencies, MachineScope
from remuda.kube import clock
from remuda.runtime.outcome import Retryable


async def bootstrap(world: MachineDependencies, scope: MachineScope) -> None:
    given = scope.machine.spec.bootstrap
    if given.config_ref is None:
        if given.data_secret_name:
            _initialized(scope, "bootstrapDataSecretCreated")
        else:
            scope.block(
                "WaitingForBootstrapData", f"Machine {scope.machine.key}", "spec.bootstrap.dataSecretName is not set"
            )
        return
    place = scope.place(given.config_ref)
    scope.bootstrap = found = await world.externals.get(given.config_ref, scope.namespace)
    if given.data_secret_name:
        _initialized(scope, "bootstrapDataSecretCreated")
    if found is None:
        if not given.data_secret_name:
            scope.block("WaitingForBootstrapData", place, f"{place} does not exist")
        return
    if found.deleting:
        return
    await take_over(world, scope, found)
    _copy_failure(scope, found)
    if not given.data_secret_name:
        _take_data_secret(scope, found, place)


def _take_data_secret(scope: MachineScope, found: ProviderObject, place: str) -> None:
    if not contract.data_secret_created(found):
        flag = ".".join(contract.data_secret_created_path(found))
        scope.block("WaitingForBootstrapData", place, f"{place} {flag} is false")
        return
    name = contract.data_secret_name(found)
    if not name:
        raise found.broken("it reports that the bootstrap data exists, but status.dataSecretName is empty")
    scope.draft.spec.setdefault("bootstrap", {})["dataSecretName"] = name
    _initialized(scope, "bootstrapDataSecretCreated")


async def infrastructure(world: MachineDependencies, scope: MachineScope) -> None:
    ref = scope.machine.spec.infrastructure_ref
    if not ref.defined:
        raise Retryable("spec.infrastructureRef is incomplete: set apiGroup, kind and name")
    place = scope.place(ref)
    scope.infrastructure = found = await world.externals.get(ref, scope.namespace)
    if found is None:
        if scope.machine.status.initialization.infrastructure_provisioned:
            why = f"{place} was deleted and is not recreated: delete the Machine to replace it"
            scope.block("InfrastructureDeleted", place, why)
        else:
            scope.block("WaitingForInfrastructure", place, f"{place} does not exist")
        return
    if found.deleting:
        return
    await take_over(world, scope, found)
    _copy_failure(scope, found)
    if contract.provisioned(found):
        _take_server(scope, found, place)
    elif not scope.machine.status.initialization.infrastructure_provisioned:
        scope.block("WaitingForInfrastructure", place, f"{place} {'.'.join(contract.provisioned_path(found))} is false")


def _take_server(scope: MachineScope, found: ProviderObject, place: str) -> None:
    provider_id = contract.provider_id(found)
    if not provider_id:
        scope.block("WaitingForProviderID", place, f"{place} is provisioned but has no spec.providerID yet")
        return
    spec, status = scope.draft.spec, scope.draft.status
    spec["providerID"] = provider_id
    if chosen := contract.chosen_failure_domain(found):
        spec["failureDomain"] = chosen
    _set(status, "failureDomain", contract.failure_domain(found))
    _set(status, "addresses", contract.addresses(found))
    _initialized(scope, "infrastructureProvisioned")


async def certificates(world: MachineDependencies, scope: MachineScope) -> None:
    """Write the expiry date of a control plane's certificates to the status: from the Machine's own annotation, else
    from its bootstrap object's."""
    found = scope.machine.metadata.annotations.get(names.CERTIFICATES_EXPIRY)
    if found is None and scope.bootstrap is not None:
        found = scope.bootstrap.metadata.annotations.get(names.CERTIFICATES_EXPIRY)
    moment = None
    if found is not None:
        try:
            moment = clock.rfc3339(clock.parse(found))
        except ValueError:
            text = f"annotation {names.CERTIFICATES_EXPIRY} is not an RFC 3339 time: {found}"
            world.events.warning(scope.machine, "InvalidCertificatesExpiry", text)
    _set(scope.draft.status, "certificatesExpiryDate", moment)


def _copy_failure(scope: MachineScope, found: ProviderObject) -> None:
    """Copy the failure for readers of the v1beta1 API; no controller acts on it."""
    reason, message = contract.failure(found)
    if reason or message:
        old = scope.draft.status.setdefault("deprecated", {}).setdefault("v1beta1", {})
        _set(old, "failureReason", reason)
        _set(old, "failureMessage", f"{found}: {message}" if message else "")


def _initialized(scope: MachineScope, flag: str) -> None:
    scope.draft.status.setdefault("initialization", {})[flag] = True


def _set(part: dict[str, Any], name: str, value: object) -> None:
    """Set a value, or remove it if it is empty: schemas reject empty values."""
    if value:
        part[name] = value
    else:
        part.pop(name, None)
