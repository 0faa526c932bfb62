"""Service of the webhooks: certificate, listener and registration, renewed before the certificate expires.

Order matters. The listener runs before it is registered with the API server, and a new CA is registered before its
certificate is served.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from remuda.kube import clock
from remuda.kube.admission import Lookup, Select, nothing
from remuda.kube.authorization import RequiredAccess, Subject, permits
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.http.tls import load_pair
from remuda.kube.objects import Key
from remuda.runtime.queue import Backoff
from remuda.runtime.tasks import Tasks
from remuda.runtime.webhooks import certificates
from remuda.runtime.webhooks.configuration import Location, register
from remuda.runtime.webhooks.review import Call, Webhook, answer

log = logging.getLogger(__name__)

DEFAULT_PORT = 9443
_MAX_BODY = 16 * 1024 * 1024  # two objects of the maximum size, with a margin
_GRACE_SECONDS = 5.0
_LONGEST_SLEEP_SECONDS = 24 * 3600.0  # the clock may be changed; a day is soon enough to notice


class WebhookService:
    def __init__(
        self,
        client: Client,
        webhooks: Sequence[Webhook],
        lookup: Lookup,
        *,
        location: Location,
        secret: Key,
        select: Select = nothing,
        name: str = "remuda",
        own: str = "",
    ) -> None:
        """Configure the service. `secret` holds the certificates, `name` is that of the two configurations. `own`: the
        user name of the manager.
        """
        self._client = client
        self._webhooks = webhooks
        self._lookup = lookup
        self._select = select
        self.location = location
        self._secret = secret
        self._name = name
        self._own = own
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._backoff = Backoff(first=1.0, most=300.0)
        self._tasks = Tasks()
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int = DEFAULT_PORT) -> None:
        """Listen and register; return when both are done. Raises StatusError, and OSError if it cannot listen."""
        serving = await certificates.ensure(self._client, self._secret, self.location.names)
        self._serve_with(serving)
        try:
            await self._listen(host, port)
            await self._register(serving)
        except BaseException:
            await self.stop()
            raise
        self._tasks.spawn("renew the webhooks' certificate", self._keep_renewed(serving))

    async def stop(self) -> None:
        await self._tasks.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _listen(self, host: str, port: int) -> None:
        application = web.Application(client_max_size=_MAX_BODY)
        for webhook in self._webhooks:
            for call in _CALLS:
                application.router.add_post(webhook.path(call), self._handler(webhook, call))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_GRACE_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def _handler(self, webhook: Webhook, call: Call) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            try:
                answered = await answer(
                    webhook, call, body, self._lookup, self._select, permits=self._permits, own=self._own
                )
            except StatusError as error:
                return web.Response(status=error.code, text=error.message)
            return web.Response(body=answered, content_type="application/json")

        return handle

    async def _permits(self, subject: Subject, access: RequiredAccess) -> bool:
        return await permits(self._client, subject, access)

    # -- certificates --------------------------------------------------------------------------------------------

    def _serve_with(self, serving: certificates.Serving) -> None:
        """Use the certificate from the next handshake on."""
        load_pair(self._context, serving.certificate_pem, serving.key_pem, f"the Secret {self._secret}")

    async def _register(self, serving: certificates.Serving) -> None:
        await register(self._client, self._name, self._webhooks, self.location, serving.ca_pem, self._own)

    async def _keep_renewed(self, serving: certificates.Serving) -> None:
        failures = 0
        while True:
            wait = max(serving.renew_at - clock.time(), 0.0)
            await asyncio.sleep(self._backoff.seconds(failures) if failures else min(wait, _LONGEST_SLEEP_SECONDS))
            if clock.time() < serving.renew_at:
                continue
            try:
                serving = await self.renew()
                failures = 0
            except Exception as error:
                failures += 1
                log.warning("cannot renew the certificate of the webhooks (attempt %d): %s", failures, error)

    async def renew(self) -> certificates.Serving:
        """Renew the certificate in the Secret if necessary, register its CA, then serve with it."""
        serving = await certificates.ensure(self._client, self._secret, self.location.names)
        await self._register(serving)
        self._serve_with(serving)
        return serving


_CALLS: tuple[Call, ...] = ("mutate", "validate")
