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
            Column("Display Name", ".displayName", "Full name"),
            Column("Enabled", ".enabled", "Whether its tokens are valid", "boolean"),
            Column("Description", ".description", "Purpose", priority=WIDE),
            _AGE,
        ),
    ),
    Definition(
        kind=TOKEN,
        status=False,
        columns=(
            Column("User", ".userId", "User that owns it"),
            Column("Expires", ".expiresAt", "Time of expiry"),
            Column("Clusters", ".clusterNames", "Clusters that it is limited to"),
            Column("Description", ".description", "Purpose", priority=WIDE),
            _AGE,
        ),
    ),
    Definition(
        kind=GRANT,
        short_names=("crtb",),
        columns=(
            Column("Cluster", ".clusterName", "The id of the cluster"),
            Column("User", ".userName", "User that has the role"),
            Column("Group", ".groupName", "Group that has the role"),
            Column("Role", ".roleTemplateName", "Role in the cluster"),
            Column("Ready", f'.status.conditions[?(@.type=="{READY}")].status', "Whether the role is granted"),
            Column(
                "Message", f'.status.conditions[?(@.type=="{READY}")].message', "Why it is not ready", priority=WIDE
            ),
            _AGE,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
