"""Order that a Job gets for a machine: names that do not change, options copied verbatim. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from remuda.kube.objects import ObjectMeta
from remuda.providers.shared import names
from remuda.providers.shared.drivers.spi import Order
from remuda.providers.shared.types.machine import options_of

# Who the server was made for: its tag, for life. Objects that move to another management plane get a new uid; their
# annotations move with them. The name is part of it, so that a copy of a machine's manifest is not taken for it.
IDENTITY = "remuda.dev/server-identity"

Action = Literal["create", "remove"]

_SHORTEST, _LONGEST = 10, 63


def server_name(machine: str) -> str:
    return names.shorten(machine.replace(".", "-"), _LONGEST)


def hostname(metadata: ObjectMeta) -> str:
    return names.shorten(server_name(metadata.name), _limit(metadata.annotations))


def _limit(annotations: Mapping[str, str]) -> int:
    try:
        limit = int(annotations.get(names.HOSTNAME_LENGTH_LIMIT, _LONGEST))
    except ValueError:
        return _LONGEST
    return limit if _SHORTEST <= limit <= _LONGEST else _LONGEST


def identity(metadata: ObjectMeta) -> str:
    """Return the server identity in the annotation, or the one to write into it if it has none of this machine."""
    prefix = f"{metadata.namespace}/{metadata.name}/"
    said = metadata.annotations.get(IDENTITY, "")
    return said if said.startswith(prefix) and said != prefix else f"{prefix}{metadata.uid}"


def order(
    action: Action,
    driver: str,
    metadata: ObjectMeta,
    spec: Mapping[str, Any],
    *,
    cluster: str,
    owner: str,
    program: Mapping[str, str],
    network: Mapping[str, str] = {},
    local_addresses: bool = False,
) -> Order:
    return Order(
        driver=driver,
        action=action,
        name=server_name(metadata.name),
        hostname=hostname(metadata),
        namespace=metadata.namespace,
        machine=metadata.name,
        uid=identity(metadata).rpartition("/")[2],
        cluster=cluster,
        owner=owner,
        options=options_of(spec),
        state_secret=names.state_secret(metadata.name),
        program=program,
        network=network,
        local_addresses=local_addresses,
    )
