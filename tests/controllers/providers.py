"""Kinds of a small provider, of each contract: their definitions, and the fields a test writes when it plays them.

Schemas keep whatever is written, so a test decides alone what the provider reports.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.kube.client import Target

Json = dict[str, Any]

INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
CONTROL_PLANE = "controlplane.cluster.x-k8s.io"


class ProviderKind(NamedTuple):
    """One kind in the one version it serves."""

    group: str
    name: str
    contract: str

    @property
    def version(self) -> str:
        return "v1alpha3" if self.contract == "v1beta1" else "v1"

    @property
    def plural(self) -> str:
        return self.name.lower() + "s"

    @property
    def target(self) -> Target:
        return Target(f"{self.group}/{self.version}", self.plural)

    @property
    def template(self) -> ProviderKind:
        return self._replace(name=f"{self.name}Template")

    def definition(self, **labels: str) -> Json:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{self.plural}.{self.group}",
                "labels": {f"cluster.x-k8s.io/{self.contract}": self.version, "app.kubernetes.io/managed-by": "remuda"}
                | labels,
            },
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {
                    "kind": self.name,
                    "listKind": f"{self.name}List",
                    "plural": self.plural,
                    "singular": self.name.lower(),
                },
                "versions": [
                    {
                        "name": self.version,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {
                            "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
                        },
                    }
                ],
            },
        }

    def object(self, name: str, spec: Json | None = None, **metadata: Any) -> Json:
        return {
            "apiVersion": self.target.api_version,
            "kind": self.name,
            "metadata": {"name": name, **metadata},
            "spec": spec or {},
        }

    def reference(self, name: str) -> Json:
        return {"apiGroup": self.group, "kind": self.name, "name": name}


class Provider(NamedTuple):
    """All kinds of one contract, and how each says that it is done."""

    contract: str
    cluster: ProviderKind
    machine: ProviderKind
    config: ProviderKind
    control_plane: ProviderKind

    def definitions(self) -> list[Json]:
        kinds = [
            self.cluster,
            self.machine,
            self.config,
            self.control_plane,
            self.machine.template,
            self.config.template,
        ]
        return [kind.definition() for kind in kinds]

    @property
    def provisioned(self) -> Json:
        """The status of infrastructure that is ready."""
        return {"ready": True} if self.old else {"initialization": {"provisioned": True}}

    def data_secret(self, name: str) -> Json:
        """The status of a bootstrap config that has made its Secret."""
        done: Json = {"ready": True} if self.old else {"initialization": {"dataSecretCreated": True}}
        return {"dataSecretName": name, **done}

    @property
    def initialized(self) -> Json:
        """The status of a control plane whose API answers."""
        return {"initialized": True} if self.old else {"initialization": {"controlPlaneInitialized": True}}

    @property
    def old(self) -> bool:
        return self.contract == "v1beta1"


def _provider(contract: str, prefix: str) -> Provider:
    return Provider(
        contract,
        ProviderKind(INFRASTRUCTURE, f"{prefix}Cluster", contract),
        ProviderKind(INFRASTRUCTURE, f"{prefix}Machine", contract),
        ProviderKind(BOOTSTRAP, f"{prefix}Config", contract),
        ProviderKind(CONTROL_PLANE, f"{prefix}ControlPlane", contract),
    )


NEW = _provider("v1beta2", "New")
OLD = _provider("v1beta1", "Old")
PROVIDERS = (NEW, OLD)
