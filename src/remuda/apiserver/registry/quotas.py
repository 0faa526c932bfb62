"""Check of object counts against the ResourceQuotas of a namespace.

The check is exact: it counts writes in flight, and the caller passes its own write to the store before the event loop
runs anything else. If a counted write fails, all later writes fail too.
"""

from __future__ import annotations

from remuda.apiserver.kinds.core_quotas import TABLE, limits
from remuda.apiserver.resource import Resource
from remuda.apiserver.storage.protocol import Store
from remuda.kube.errors import forbidden_request
from remuda.kube.quantity import canonical_quantity
from remuda.kube.quotas import Exceeded


def check_quotas(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raise 403 if one more object would exceed a quota. The caller must write without awaiting anything else."""
    if not namespace:
        return
    for quota in store.scan(TABLE, namespace):
        counts = [limit for limit in limits(quota.value) if limit.table == resource.table]
        used = store.count_latest(resource.table, namespace) if counts else 0
        exceeded = [limit for limit in counts if used >= limit.most]
        if exceeded:
            why = Exceeded(
                quota.name,
                requested=",".join(f"{limit.resource}=1" for limit in exceeded),
                used=",".join(f"{limit.resource}={canonical_quantity(used)}" for limit in exceeded),
                limited=",".join(f"{limit.resource}={canonical_quantity(limit.most)}" for limit in exceeded),
            )
            raise forbidden_request(resource.group, resource.plural, name, str(why))
