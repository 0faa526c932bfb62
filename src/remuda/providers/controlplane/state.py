"""The state Secret `<cluster>-rke-state`: the tokens by which nodes join, created once, and the key of tunnel tokens.

Join tokens are never replaced once a host has a plan: a server that restarts with a token other than its cluster's does
not come back. If the Secret is deleted then, a condition reports it, and no plan changes until it is restored. A Secret
of an older release that has no tunnel key gets one.
"""

from __future__ import annotations

import secrets

from remuda.kube.client import Client
from remuda.kube.core import SECRETS
from remuda.kube.objects import Key
from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner.observation import Tokens
from remuda.providers.controlplane.referenced_objects import ReferencedObject, ReferencedObjects
from remuda.providers.shared import names
from remuda.providers.shared.secrets import create_owned, encoded, owned_secret
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

CREATE = step("rkecontrolplane.create-tokens", "creates the Secret with the tokens by which nodes join a cluster")
ADD_KEY = step("rkecontrolplane.add-tunnel-key", "adds the tunnel key to a state Secret that has none")

TYPE = "rke.cattle.io/cluster-state"
SERVER, AGENT, TUNNEL = "serverToken", "agentToken", "tunnelKey"


def secret_name(cluster: str) -> str:
    return names.join(cluster, "rke", "state")


async def tokens(client: Client, named: ReferencedObjects, plane: RKEControlPlane, *, delivered: bool) -> Tokens | Wait:
    """`delivered`: some host has a plan, with tokens in it."""
    key = Key(plane.metadata.namespace, secret_name(plane.spec.cluster_name))
    held = await named.secret(key)
    if held is None:
        if delivered:
            return _lost(key, "was deleted")
        made = {name: secrets.token_hex(32).encode() for name in (SERVER, AGENT, TUNNEL)}
        await create_owned(client, plane, owned_secret(plane, key.name, made, type=TYPE), CREATE)
        held = await named.secret(key)
        if held is None:
            raise Retryable(f"Secret {key} was deleted right after its creation")
    found = _read(held)
    if isinstance(found, Wait) or found.tunnel:
        return found
    return _read(await _with_key(client, named, held))


async def _with_key(client: Client, named: ReferencedObjects, held: ReferencedObject) -> ReferencedObject:
    """Add the tunnel key to the Secret. If another writer adds one at the same time, one key wins and both read it."""
    added = encoded({TUNNEL: secrets.token_hex(32).encode()})
    async with ADD_KEY:
        await client.patch(SECRETS, *held.key, {"metadata": {"resourceVersion": held.version}, "data": added})
    found = await named.secret(held.key)
    if found is None or not found.data.get(TUNNEL):
        raise Retryable(f"Secret {held.key} changed in the meantime")
    return found


def _read(held: ReferencedObject) -> Tokens | Wait:
    server, agent = held.data.get(SERVER, b"").decode().strip(), held.data.get(AGENT, b"").decode().strip()
    if not server or not agent:
        return _lost(held.key, f"lacks {SERVER} or {AGENT}")
    return Tokens(server, agent, held.data.get(TUNNEL, b"").strip())


def _lost(key: Key, missing: str) -> Wait:
    return Wait(
        reason="TokensLost",
        on=f"Secret {key}",
        missing=missing,
        then="restore it unchanged: nodes authenticate each other by these tokens, so new ones would not work",
    )
