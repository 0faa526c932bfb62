"""Registration of webhooks with the API server: renders and applies the two webhook configurations.

`failurePolicy: Fail`: an object that no webhook has checked is not stored. `matchPolicy: Equivalent`: a write in
another version of the kind is converted and checked too.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.kube.client import Client, Target
from remuda.kube.errors import ignore_not_found
from remuda.kube.objects import Key
from remuda.runtime.steps import step
from remuda.runtime.webhooks.review import Call, Webhook

REGISTER = step("webhooks.register", "registers the webhooks and their CA with the API server")
UNREGISTER = step("webhooks.unregister", "removes the registration of the webhooks from the API server")

GROUP_VERSION = "admissionregistration.k8s.io/v1"
MUTATING = Target(GROUP_VERSION, "mutatingwebhookconfigurations")
VALIDATING = Target(GROUP_VERSION, "validatingwebhookconfigurations")
FIELD_MANAGER = "remuda-webhooks"

_TIMEOUT_SECONDS = 10
_NAMES: dict[Call, str] = {"mutate": "default", "validate": "validation"}  # names of upstream's webhooks


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Address at which the API server calls the webhooks: a URL, or a Service of its own cluster."""

    url: str = ""
    service: Key | None = None
    service_port: int = 443

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.service):
            raise ValueError("webhooks need either a URL or a Service, not both")
        if self.url and (urlsplit(self.url).scheme != "https" or not urlsplit(self.url).hostname):
            raise ValueError(f"webhooks are called over https only, not at {self.url!r}")

    @classmethod
    def at(cls, url: str) -> Location:
        """Return the location of a URL. `https://NAME.NAMESPACE.svc[:PORT]` is a Service, which the API server finds
        without DNS. Raise ValueError.
        """
        parts = urlsplit(url)
        name, *rest = (parts.hostname or "").split(".")
        if parts.scheme != "https" or len(rest) != 2 or rest[1] != "svc" or parts.path.strip("/"):
            return cls(url=url)
        return cls(service=Key(rest[0], name), service_port=parts.port or 443)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that the serving certificate must be valid for."""
        if self.service is None:
            return (urlsplit(self.url).hostname or "",)
        host = f"{self.service.name}.{self.service.namespace}"
        return (f"{host}.svc", host, f"{host}.svc.cluster.local")

    def client_config(self, path: str, ca_pem: bytes) -> dict[str, Any]:
        trusted = {"caBundle": base64.b64encode(ca_pem).decode()}
        if self.service is None:
            return {"url": self.url.rstrip("/") + path, **trusted}
        namespace, name = self.service
        return {
            "service": {"namespace": namespace, "name": name, "path": path, "port": self.service_port},
            **trusted,
        }


def configurations(
    name: str, webhooks: Sequence[Webhook], location: Location, ca_pem: bytes, own: str = ""
) -> list[tuple[Target, dict[str, Any]]]:
    """Render both configurations. `own`: the user name of the manager."""
    mutating = _configuration("MutatingWebhookConfiguration", name, "mutate", webhooks, location, ca_pem, own)
    validating = _configuration("ValidatingWebhookConfiguration", name, "validate", webhooks, location, ca_pem, own)
    return [(MUTATING, mutating), (VALIDATING, validating)]


def _configuration(
    kind: str, name: str, call: Call, webhooks: Sequence[Webhook], location: Location, ca_pem: bytes, own: str
) -> dict[str, Any]:
    return {
        "apiVersion": GROUP_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [
            _entry(call, webhook, location, ca_pem, own) for webhook in webhooks if webhook.operations_of(call)
        ],
    }


def _entry(call: Call, webhook: Webhook, location: Location, ca_pem: bytes, own: str) -> dict[str, Any]:
    target = webhook.target
    conditions = [{"name": "concerned", "expression": webhook.only}] if webhook.only else []
    if own and webhook.except_manager:
        conditions.append({"name": "not-by-manager", "expression": f"request.userInfo.username != {_quoted(own)}"})
    return {
        "name": f"{_NAMES[call]}.{webhook.kind.lower()}.{target.group or 'core'}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": location.client_config(webhook.path(call), ca_pem),
        "rules": [
            {
                "apiGroups": [target.group],
                "apiVersions": [target.version],
                "resources": [target.plural],
                "operations": list(webhook.operations_of(call)),
                "scope": "*",
            }
        ],
        **({"matchConditions": conditions} if conditions else {}),
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_SECONDS,
    }


def _quoted(text: str) -> str:
    """Return a text as a string of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def register(
    client: Client, name: str, webhooks: Sequence[Webhook], location: Location, ca_pem: bytes, own: str = ""
) -> None:
    """Register the webhooks. All replicas write the same, so neither their order nor a repetition matters."""
    for target, wanted in configurations(name, webhooks, location, ca_pem, own):
        async with REGISTER:
            await client.patch(target, "", name, wanted, kind="apply", field_manager=FIELD_MANAGER, force=True)


async def unregister(client: Client, name: str) -> bool:
    """Delete the webhook configurations; return whether there were any.

    Objects are then checked by their schemas only.
    """
    removed = False
    for target in (MUTATING, VALIDATING):
        with ignore_not_found():
            async with UNREGISTER:
                await client.delete(target, "", name)
            removed = True
    return removed
