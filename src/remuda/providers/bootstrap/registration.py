"""Registration of hosts: exchange a token for a kubeconfig that grants access to the host's plan Secret alone.

Every replica can do this, leader or not, and keeps no state in memory. A request waits for objects that controllers
still have to create, for less time than a host waits for its answer.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from remuda.capi.types import MACHINE
from remuda.kube.client import Client
from remuda.kube.core import SECRET, Secret
from remuda.kube.objects import Key
from remuda.providers.bootstrap import objects
from remuda.providers.bootstrap.registrants import RETRY_SECONDS, AuthenticatedHost, Callers, HostRefused
from remuda.providers.shared import names, plan_access
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.bootstrap import CONNECTED, RKEBootstrap
from remuda.runtime.events import Events
from remuda.runtime.steps import step

__all__ = ["ConnectionInfo", "HostRefused", "RegistrationService"]

IDENTIFY = step("registration.identify", "labels a Machine with the id of its host")
PUBLISH = step("registration.publish", "records that a host's agent has connected")

HOLD_SECONDS = 45.0  # hosts give up after a minute, and get an answer about missing objects before that
_CONFIG_FILE = "config.yaml.d/50-rancher.yaml"


class ConnectionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Content of an agent's connection-info file."""

    kube_config: str
    namespace: str
    secret_name: str

    def __repr__(self) -> str:
        return f"<connection to {self.namespace}/{self.secret_name}>"  # never the token


class RegistrationService:
    def __init__(self, client: Client, events: Events, site: Site, *, hold_seconds: float = HOLD_SECONDS) -> None:
        self._client = client
        self._site = site
        self._hold_seconds = hold_seconds
        self._callers = Callers(client, events, hold_seconds)

    async def connect(self, token: str, headers: Mapping[str, str]) -> ConnectionInfo:
        """`headers` by lower-case names. Raises HostRefused."""
        host = await self._callers.admit(token, headers, use=True)
        account_token = await self._account_token(host.bootstrap)
        await self._identify(host)
        try:
            # Last, because the bootstrap token is not renewed once the host is marked as connected.
            await objects.mark(self._client, host.bootstrap.key, CONNECTED, PUBLISH)
        except objects.Contested as error:
            raise HostRefused(503, str(error), RETRY_SECONDS) from None
        return ConnectionInfo(
            kube_config=self._kubeconfig(account_token),
            namespace=host.bootstrap.metadata.namespace,
            secret_name=names.plan_secret(host.bootstrap.metadata.name),
        )

    async def cluster_info(self, token: str, headers: Mapping[str, str]) -> str:
        """Return the value that the header `X-Cattle-Field` asks for. Raises HostRefused."""
        host = await self._callers.admit(token, headers, use=False)
        field = headers.get("x-cattle-field", "").strip().lower()
        if field != "kubernetesversion":
            raise HostRefused(400, "the header X-Cattle-Field must be kubernetesversion")
        if not host.machine.spec.version:
            raise HostRefused(404, f"Machine {host.machine.key} does not name a Kubernetes version")
        return host.machine.spec.version

    async def config_yaml(self, token: str, headers: Mapping[str, str]) -> str:
        """The distribution's config file of the host's plan. Raises HostRefused."""
        host = await self._callers.admit(token, headers, use=False)
        name = names.plan_secret(host.bootstrap.metadata.name)
        plan = await objects.find(self._client, SECRET, Key(host.bootstrap.metadata.namespace, name))
        content = _planned_file(plan.data.get("plan", b"") if plan is not None else b"")
        if content is None:
            raise HostRefused(404, "the plan of this host has no such file yet", RETRY_SECONDS)
        return content

    async def _account_token(self, bootstrap: RKEBootstrap) -> str:
        def holds(secret: Secret) -> bool:
            return plan_access.is_of(secret.metadata, bootstrap.metadata.uid) and _has_token(secret)

        key = Key(bootstrap.metadata.namespace, plan_access.token_secret(bootstrap.metadata.name))
        try:
            found = await objects.until(self._client, SECRET, key, holds, self._hold_seconds)
        except TimeoutError:
            missing = f"the service account of RKEBootstrap {bootstrap.key} does not exist yet"
            raise HostRefused(503, missing, RETRY_SECONDS) from None
        return found.data[plan_access.TOKEN_KEY].decode()

    def _kubeconfig(self, token: str) -> str:
        """Return the kubeconfig as JSON, which is also YAML."""
        authority = base64.b64encode(self._site.ca_pem).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "agent",
                    "cluster": {"server": self._site.server_url, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "agent", "user": {"token": token}}],
            "contexts": [{"name": "agent", "context": {"cluster": "agent", "user": "agent"}}],
            "current-context": "agent",
        }
        return msgspec.json.format(msgspec.json.encode(config), indent=2).decode()

    async def _identify(self, host: AuthenticatedHost) -> None:
        if host.machine.metadata.labels.get(names.MACHINE_ID) == host.id:
            return
        async with IDENTIFY:
            await self._client.patch(
                MACHINE.target, *host.machine.key, {"metadata": {"labels": {names.MACHINE_ID: host.id}}}
            )


def _has_token(secret: Secret) -> bool:
    return secret.type == plan_access.TOKEN_TYPE and bool(secret.data.get(plan_access.TOKEN_KEY))


class _File(msgspec.Struct):
    path: str = ""
    content: str = ""


class _Plan(msgspec.Struct):
    files: list[_File] | None = None


def _planned_file(plan: bytes) -> str | None:
    try:
        files = msgspec.json.decode(plan, type=_Plan).files or [] if plan else []
        found = next((file for file in files if file.path.endswith(_CONFIG_FILE)), None)
        return None if found is None else base64.b64decode(found.content).decode()
    except (msgspec.MsgspecError, ValueError):
        return None
