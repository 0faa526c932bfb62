"""The tokens by which nodes join: the Secret `<cluster>-rke-state`, made once.

They are never made anew once a host has a plan: a server that restarts with another token than its cluster's does not
come back. A Secret that is gone then is told, and nothing changes until somebody has put it back.
"""

from __future__ import annotations

import secrets

from remuda.kube.client import Client
from remuda.kube.objects import Key
from remuda.kube.waits import Wait
from remuda.providers import names
from remuda.providers.controlplane import belongings
from remuda.providers.controlplane.named import Held, Named
from remuda.providers.controlplane.planner.observed import Tokens
from remuda.providers.controlplane.types import RKEControlPlane
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

CREATE = step("rkecontrolplane.create-tokens", "creates the Secret with the tokens by which nodes join a cluster")

TYPE = "rke.cattle.io/cluster-state"
SERVER, AGENT = "serverToken", "agentToken"


def secret_name(cluster: str) -> str:
    return names.join(cluster, "rke", "state")


async def tokens(client: Client, named: Named, plane: RKEControlPlane, *, delivered: bool) -> Tokens | Wait:
    """`delivered`: some host has a plan, with tokens in it."""
    key = Key(plane.metadata.namespace, secret_name(plane.spec.cluster_name))
    held = await named.secret(key)
    if held is None:
        if delivered:
            return _lost(key, "does not exist any more")
        made = {SERVER: secrets.token_hex(32).encode(), AGENT: secrets.token_hex(32).encode()}
        await belongings.create(client, plane, belongings.secret(plane, key.name, made, type=TYPE), CREATE)
        held = await named.secret(key)
        if held is None:
            raise Retryable(f"the Secret {key} was made and is gone again")
    return _read(held)


def _read(held: Held) -> Tokens | Wait:
    server, agent = held.data.get(SERVER, b"").decode().strip(), held.data.get(AGENT, b"").decode().strip()
    if not server or not agent:
        return _lost(held.key, f"does not hold {SERVER} and {AGENT}")
    return Tokens(server, agent)


def _lost(key: Key, missing: str) -> Wait:
    return Wait(
        reason="TokensLost",
        on=f"Secret {key}",
        missing=missing,
        then="put it back as it was: nodes know each other by these tokens, so no others are made",
    )
