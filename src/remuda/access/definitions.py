"""The CustomResourceDefinitions of users, tokens and grants."""

from __future__ import annotations

from typing import Any

from remuda.access.types import GRANT, READY, TOKEN, USER
from remuda.kube.definitions import WIDE, Column, Definition, custom_resource_definition

_AGE = Column("Age", ".metadata.creationTimestamp", "Time since it was created", "date")

DEFINITIONS = (
    Definition(
        kind=USER,
        status=False,
        columns=(
            Column("Display Name", ".displayName", "Its name in full"),
            Column("Enabled", ".enabled", "Whether its tokens are good", "boolean"),
            Column("Description", ".description", "What it is for", priority=WIDE),
            _AGE,
        ),
    ),
    Definition(
        kind=TOKEN,
        status=False,
        columns=(
            Column("User", ".userId", "Whose it is"),
            Column("Expires", ".expiresAt", "When it ceases to be good"),
            Column("Clusters", ".clusterNames", "The only ones it is good for"),
            Column("Description", ".description", "What it is for", priority=WIDE),
            _AGE,
        ),
    ),
    Definition(
        kind=GRANT,
        short_names=("crtb",),
        columns=(
            Column("Cluster", ".clusterName", "The id of the cluster"),
            Column("User", ".userName", "Who"),
            Column("Group", ".groupName", "Who"),
            Column("Role", ".roleTemplateName", "What they may do there"),
            Column("Ready", f'.status.conditions[?(@.type=="{READY}")].status', "Whether both ends say so"),
            Column("Message", f'.status.conditions[?(@.type=="{READY}")].message', "What it waits for", priority=WIDE),
            _AGE,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
