"""The CustomResourceDefinitions of users, tokens and grants."""

from __future__ import annotations

from typing import Any

from remuda.access.types import GRANT, READY, TOKEN, USER
from remuda.kube.definitions import WIDE, Definition, PrinterColumn, custom_resource_definition

_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date")

DEFINITIONS = (
    Definition(
        kind=USER,
        status=False,
        columns=(
            PrinterColumn("Display Name", ".displayName", "Full name"),
            PrinterColumn("Enabled", ".enabled", "Whether its tokens are valid", "boolean"),
            PrinterColumn("Description", ".description", "Purpose", priority=WIDE),
            _AGE,
        ),
    ),
    Definition(
        kind=TOKEN,
        status=False,
        columns=(
            PrinterColumn("User", ".userId", "User that owns it"),
            PrinterColumn("Expires", ".expiresAt", "Time of expiry"),
            PrinterColumn("Clusters", ".clusterNames", "Clusters that it is limited to"),
            PrinterColumn("Description", ".description", "Purpose", priority=WIDE),
            _AGE,
        ),
    ),
    Definition(
        kind=GRANT,
        short_names=("crtb",),
        columns=(
            PrinterColumn("Cluster", ".clusterName", "The id of the cluster"),
            PrinterColumn("User", ".userName", "User that has the role"),
            PrinterColumn("Group", ".groupName", "Group that has the role"),
            PrinterColumn("Role", ".roleTemplateName", "Role in the cluster"),
            PrinterColumn("Ready", f'.status.conditions[?(@.type=="{READY}")].status', "Whether the role is granted"),
            PrinterColumn(
                "Message", f'.status.conditions[?(@.type=="{READY}")].message', "Why it is not ready", priority=WIDE
            ),
            _AGE,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Ready to be installed."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
