"""Built-in kinds. Each is one call of `declare` in the module of its group, with its types in `types/*.idl`.

To add a kind: write its messages into the group's IDL file, call `declare` in the group's module, and list the kind in
that module's RESOURCES. No other code knows kinds by name.
"""

from __future__ import annotations

from functools import cache

from remuda.apiserver.resource import Resource


@cache
def builtin_resources() -> tuple[Resource, ...]:
    """Return every built-in resource, in the order of discovery."""
    # Imported here so that commands that need no server do not load the kinds.
    from remuda.apiserver.kinds import (
        apiextensions,
        apps,
        batch,
        coordination,
        core,
        discovery,
        events,
        networking,
        policy,
        rbac,
        registration,
        reviews,
        scheduling,
        storage,
    )

    return (
        *core.RESOURCES,
        registration.API_SERVICES,
        *apps.RESOURCES,
        *events.RESOURCES,
        *reviews.AUTHENTICATION,
        *reviews.AUTHORIZATION,
        *batch.RESOURCES,
        *networking.RESOURCES,
        *policy.RESOURCES,
        *rbac.RESOURCES,
        *storage.RESOURCES,
        registration.MUTATING_WEBHOOKS,
        registration.VALIDATING_WEBHOOKS,
        *apiextensions.RESOURCES,
        *scheduling.RESOURCES,
        *coordination.RESOURCES,
        *discovery.RESOURCES,
    )
