"""Provider templates of Machines: found, and owned by their Cluster, so that they are deleted with it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from remuda.capi.contract import ProviderObject
from remuda.capi.external import Externals
from remuda.capi.types import CLUSTER, Cluster, MachineSpec, MachineTemplate, Reference
from remuda.kube.client import Client
from remuda.kube.objects import OwnerReference
from remuda.runtime.draft import save
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

OWN_TEMPLATE = step("template.own", "makes the Cluster an owner of a template that its Machines are created from")


class Templates(msgspec.Struct, frozen=True):
    """Provider templates that one Machine template refers to."""

    infrastructure: ProviderObject
    bootstrap: ProviderObject | None  # None where the bootstrap data is given


class MissingTemplate(Retryable):
    """A template does not exist (yet, or any more): no Machine can be made from it."""


def references(template: MachineTemplate) -> list[Reference]:
    return [ref for ref in (template.spec.bootstrap.config_ref, template.spec.infrastructure_ref) if ref is not None]


async def find(externals: Externals, spec: MachineSpec, namespace: str) -> Templates:
    """Raises MissingTemplate, and what `Externals.get` raises."""
    config = spec.bootstrap.config_ref
    bootstrap = None if config is None else await _find(externals, config, namespace)
    return Templates(await _find(externals, spec.infrastructure_ref, namespace), bootstrap)


async def _find(externals: Externals, ref: Reference, namespace: str) -> ProviderObject:
    found = await externals.get(ref, namespace)
    if found is None:
        raise MissingTemplate(f"{ref.kind} {namespace}/{ref.name} does not exist")
    return found


async def give_to_cluster(client: Client, cluster: Cluster, templates: Iterable[ProviderObject | None]) -> None:
    for template in templates:
        if template is None or template.deleting:
            continue
        draft = template.draft()
        draft.set_owner(cluster_owner(cluster))
        await save(client, draft, OWN_TEMPLATE)


def cluster_owner(cluster: Cluster) -> OwnerReference:
    """Return an owner reference that is not a controller and blocks no deletion: objects may have several owners."""
    return OwnerReference(
        api_version=CLUSTER.api_version, kind=CLUSTER.name, name=cluster.metadata.name, uid=cluster.metadata.uid
    )
