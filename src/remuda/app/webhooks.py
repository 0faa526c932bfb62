"""Admission served as webhooks by `remuda manager`: where they listen, where the API server finds them, and their end.

Every replica serves them, whether or not it leads. The registration outlives the process on purpose: while no replica
runs, the API server stores nothing unchecked. A user who uninstalls the manager removes it (`remove`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.app.process import Address, StartRefused, shown, why_not
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.runtime.manager import Manager
from remuda.runtime.webhooks import Location, Webhook, lookup_in, select_in, unregister
from remuda.runtime.webhooks.configuration import FIELD_MANAGER, VALIDATING
from remuda.runtime.webhooks.service import WebhookService

NAME = "remuda"  # of the two configurations
SECRET_NAME = "remuda-webhooks"  # noqa: S105 - name of the Secret

_SELF = Target("authentication.k8s.io/v1", "selfsubjectreviews")
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - where nobody can be reached


def location(listen: Address, url: str) -> Location:
    """Return the address by which the API server reaches a listener. Raises StartRefused for one it could not reach."""
    host, port = listen
    if not url and (host in _EVERYWHERE or not port):
        raise StartRefused(f"the API server cannot reach --webhook-listen {shown(listen)}: add --webhook-url")
    try:
        return Location.at(url or f"https://{shown(listen)}")
    except ValueError as error:
        raise StartRefused(f"--webhook-url: {error}") from None


def add(
    manager: Manager, webhooks: Sequence[Webhook], listen: Address, found_at: Location, namespace: str, own: str
) -> WebhookService:
    """Serve webhooks from the moment the caches are filled until the manager ends. The certificates are in `namespace`.
    `own`: the user that the manager itself is."""
    service = WebhookService(
        manager.client,
        webhooks,
        lookup_in(manager.caches),
        location=found_at,
        select=select_in(manager.caches),
        secret=Key(namespace, SECRET_NAME),
        name=NAME,
        own=own,
    )

    async def start() -> None:
        try:
            await service.start(*listen)
        except StatusError as error:
            raise StartRefused(f"cannot register the webhooks: {error}") from None
        except OSError as error:
            raise StartRefused(f"cannot listen on {shown(listen)} for --webhook-listen: {why_not(error)}") from None

    manager.at_start(start)
    manager.at_end(service.stop)
    return service


async def require(client: Client) -> None:
    """Raise StartRefused if the API server does not accept webhook configurations, before anything is written.

    A dry run decides this, not the version: a server that supports webhooks later is accepted without a change here.
    """
    probe = {
        "apiVersion": VALIDATING.api_version,
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [],
    }
    try:
        await client.patch(
            VALIDATING, "", NAME, probe, kind="apply", field_manager=FIELD_MANAGER, force=True, dry_run=True
        )
    except StatusError as error:
        raise StartRefused(
            f"cannot use --webhook-listen with this API server: {error.message}. Omit --webhook-listen, or run "
            "`remuda up`, which checks objects in its own process, or use a Kubernetes API server."
        ) from None


class _UserInfo(msgspec.Struct):
    username: str


class _Status(msgspec.Struct, rename="camel"):
    user_info: _UserInfo


class _SelfReview(msgspec.Struct):
    status: _Status


async def own_user(client: Client) -> str:
    """Return the user name that this manager's credentials stand for: admission lets its own writes pass."""
    wanted = {"apiVersion": _SELF.api_version, "kind": "SelfSubjectReview"}
    try:
        answer = await client.create(_SELF, "", wanted)
    except StatusError as error:
        raise StartRefused(
            f"cannot determine the user name of this manager, which its webhooks need: {error}"
        ) from None
    return msgspec.json.decode(answer, type=_SelfReview).status.user_info.username


async def remove(client: Client) -> str:
    """Remove the registration and return a message."""
    try:
        removed = await unregister(client, NAME)
    except StatusError as error:
        raise StartRefused(f"cannot remove the webhooks: {error}") from None
    if not removed:
        return "no webhooks were registered"
    return "webhooks removed; a manager with --webhook-listen registers them again when it starts"
