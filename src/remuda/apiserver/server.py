"""Assembly of the engine: storage, registry, authorization, upkeep and HTTP, on one data directory.

`ApiServer.start` returns when the server answers requests. `stop` ends watches cleanly, finishes requests in progress
and brings every write to disk. Embedding applications use `registry`, `client` and `front` of the running server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from remuda.apiserver import ApiServerError, clock_check
from remuda.apiserver.auth import pki as pki_module
from remuda.apiserver.auth.authenticate import Authenticator
from remuda.apiserver.auth.impersonate import Impersonation
from remuda.apiserver.auth.jws import KeySet, Signer
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.token_authenticators import (
    ServiceAccountTokens,
    StaticTokens,
    TokenAuthenticator,
    TokenFileError,
    read_token_file,
)
from remuda.apiserver.auth.tokens import TokenSettings, openid_configuration
from remuda.apiserver.auth.user import MANAGER, MASTERS, User
from remuda.apiserver.bootstrap import bootstrap
from remuda.apiserver.client import LocalClient
from remuda.apiserver.handlers import register_handlers
from remuda.apiserver.http.custom_certificate import CustomCertificate
from remuda.apiserver.http.handler import HttpFront
from remuda.apiserver.http.system import Check
from remuda.apiserver.kinds import builtin_resources, protobuf
from remuda.apiserver.kinds.core_quotas import TABLE as QUOTAS
from remuda.apiserver.kinds.core_quotas import warn_of_unenforced
from remuda.apiserver.kinds.registration import ADMISSION_GROUP, WEBHOOK_PLURALS, refuse_webhooks
from remuda.apiserver.registry.crds import TABLE as DEFINITIONS
from remuda.apiserver.registry.crds import Definitions, with_schema_validation
from remuda.apiserver.registry.logs import PodLogs
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.registry.served import Served
from remuda.apiserver.schema.openapi import openapi_v3
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import ObjectsDamaged, StoreUnusable
from remuda.apiserver.upkeep.upkeep import Upkeep
from remuda.kube import clock, kubeconfig
from remuda.kube.admission import AdmissionRegistration
from remuda.kube.errors import StatusError
from remuda.kube.web import Handler

STOP_GRACE_SECONDS = 5.0
_RENEW_SECONDS = 24 * 3600.0

log = logging.getLogger(__name__)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6443
    names: tuple[str, ...] = ()  # further names and addresses in the serving certificate
    token_file: Path | None = None
    upkeep: bool = True  # off: kube-controller-manager runs against this server
    event_ttl_seconds: float = 3600.0
    reserve_bytes: int = 0  # space kept free for deletes on a full disk
    volatile: bool = False  # objects live only in memory: for simulations
    # stores webhook configurations although they are never called: for tests that register them
    webhook_records: bool = False


class StartRefused(ApiServerError):
    """Error that prevents the start; the text is for the user."""


class ApiServer:
    def __init__(
        self,
        settings: ServerSettings,
        store: SqliteStore,
        pki: pki_module.Pki,
        tokens: Sequence[TokenAuthenticator],
        presented: CustomCertificate | None = None,
        readiness: Mapping[str, Check] | None = None,
    ) -> None:
        self._settings = settings
        self._presented = presented
        self._context: ssl.SSLContext  # context of the server's own certificate
        self._renewing: asyncio.Task[None] | None = None
        self.store = store
        self.pki = pki
        signer = Signer(pki.token_key)
        keys = KeySet([pki.token_key.public_key()])
        token_settings = TokenSettings()
        self.authorizer = RbacAuthorizer(store)
        self.authenticator = Authenticator(
            [*tokens, ServiceAccountTokens(keys, token_settings, store.get, time.time)],
            api_audiences=token_settings.api_audiences,
        )
        served = Served(with_schema_validation(r) if r.table == DEFINITIONS else r for r in builtin_resources())
        self.registry = Registry(store, served, self.authorizer)
        if not settings.webhook_records:
            for plural in WEBHOOK_PLURALS:
                self.registry.admission.register(ADMISSION_GROUP, plural, refuse_webhooks, ("CREATE", "UPDATE"))
        self.registry.admission.register("", QUOTAS, warn_of_unenforced, ("CREATE", "UPDATE"))
        self._definitions = Definitions(store, served)
        self.pod_logs = PodLogs(self.registry)
        self.registry.connect_with("pods", "log", self.pod_logs.connector())
        register_handlers(self.registry, self.authenticator, self.authorizer, signer, token_settings)
        self._upkeep = Upkeep(
            self.registry,
            signer=signer,
            ca=pki.ca_certificate_pem,
            event_ttl=timedelta(seconds=settings.event_ttl_seconds),
            controllers=settings.upkeep,
        )
        impersonation = Impersonation(self.authorizer)
        self.front = HttpFront(
            self.registry,
            authenticate=self.authenticator.authenticate,
            authorizer=self.authorizer,
            impersonate=impersonation.apply,
            build_openapi=openapi_v3,
            documents={
                "/openid/v1/jwks": ("application/jwk-set+json", keys.jwks),
                "/.well-known/openid-configuration": (
                    "application/json",
                    lambda: openid_configuration(token_settings, keys, f"{self.url}/openid/v1/jwks"),
                ),
            },
            readiness={"objects": self._object_check, "disk": store.lack_of_room, **(readiness or {})},
            protobuf=protobuf.decode,
            stored_objects=lambda: {table: store.count(table) for table in store.tables()},
        )

    @classmethod
    async def start(
        cls,
        settings: ServerSettings,
        *,
        admission: Sequence[AdmissionRegistration] = (),
        routes: Mapping[str, Handler] | None = None,
        pki: pki_module.Pki | None = None,
        before: Callable[[Handler], Handler] | None = None,
        presented: CustomCertificate | None = None,
        readiness: Mapping[str, Check] | None = None,
    ) -> ApiServer:
        """Start the server. Raise StartRefused with the cause before anything is served.

        `admission` and `routes` (which take precedence over the API's paths) are effective from the first request on.
        `pki`: keys that are stored elsewhere. `before` wraps the API's handler and sees every request first.
        `presented`: a certificate that is served beside the server's own. `readiness`: additional checks of /readyz, by
        name.
        """
        try:
            tokens = _static_tokens(settings)
            pki_module.serving_names(settings.host, settings.names)  # before a directory is created in vain
            store = await _store(settings)
        except (StoreUnusable, TokenFileError, pki_module.PkiError) as error:
            raise StartRefused(str(error)) from None
        try:
            own = pki is None
            server = cls(settings, store, pki or await _prepared(settings), tokens, presented, readiness)
            server._report_troubles()
            for registration in admission:
                server.registry.admission.register(*registration)
            for prefix, handler in (routes or {}).items():
                server.front.mount(prefix, handler)
            if before is not None:
                server.front.wrap_handler(before)
            await server._start()
            if own:
                server._renewing = asyncio.create_task(server._keep_renewed(), name="renew certificates")
        except (pki_module.PkiError, OSError, StatusError) as error:
            await store.close()
            raise StartRefused(f"{error}") from None
        except BaseException:
            await store.close()
            raise
        return server

    def _report_troubles(self) -> None:
        for damage in self.store.damaged:
            log.error("%s", ObjectsDamaged([damage]))
        if why := self.store.lack_of_room():
            log.error("%s", why)
        if not self._settings.volatile:  # a simulation has its own clock
            self._report_time()

    def _report_time(self) -> None:
        ca = self.pki.ca_certificate
        for complaint in clock_check.complaints(
            datetime.fromtimestamp(clock.time(), UTC),
            ca.not_valid_before_utc,
            ca.not_valid_after_utc,
            clock_check.newest_write(self.store),
            self.pki.folder / "ca.crt",
        ):
            log.error("%s", complaint)

    def _object_check(self) -> str:
        return str(ObjectsDamaged(self.store.damaged)) if self.store.damaged else ""

    async def _start(self) -> None:
        await bootstrap(self.registry)
        await self._upkeep.start()
        try:
            # Only now, because the first request needs the default roles and the definitions. The kubeconfig needs the
            # port.
            await self._listen()
            self._write_kubeconfig()
        except BaseException:
            await self._close()
            raise

    async def _listen(self) -> None:
        host, port = self._settings.host, self._settings.port
        try:
            self._context = self.pki.server_context()
            if self._presented is not None:
                self._presented.beside(self._context, self.pki.bare_context)
            await self.front.start(host, port, self._context)
        except OSError as error:
            # Resolver errors have negative numbers, and their text already explains them.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror
            raise StartRefused(f"cannot listen on {_shown(host)}:{port}: {why}") from None

    async def _keep_renewed(self) -> None:
        """Renew certificates that are about to expire while the server runs; the next handshake serves the new ones."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                pki = await _prepared(self._settings)
                pki.show(self._context)
                self._write_kubeconfig()
            except (pki_module.PkiError, OSError) as error:
                log.warning("cannot renew the certificates: %s", error)

    def _write_kubeconfig(self) -> None:
        admin = self.pki.admin
        config = kubeconfig.build(
            self.url,
            ca_pem=self.authorities,
            client_certificate_pem=admin.certificate_pem,
            client_key_pem=admin.key_pem,
        )
        kubeconfig.write(self.kubeconfig, config)

    @property
    def url(self) -> str:
        """Return the URL at which this machine reaches the server."""
        host = self._settings.host
        if host in ("0.0.0.0", "::", ""):  # noqa: S104 - listening everywhere, reached on loopback
            host = "127.0.0.1"
        if host == "127.0.0.1" and self._presented is not None and not self._presented.chain.covers(host):
            host = "localhost" if self._presented.is_shown_to(None) else host  # a name in the server's own certificate
        return f"https://{_shown(host)}:{self.front.port}"

    @property
    def authorities(self) -> bytes:
        """Return the PEM of the CAs that clients must trust, whichever certificate the server uses."""
        own = self.pki.ca_certificate_pem
        return own if self._presented is None else self._presented.trusted(own)

    @property
    def kubeconfig(self) -> Path:
        return self._settings.data_dir / "admin.kubeconfig"

    def client(self, user: User | None = None, *, field_manager: str = "remuda") -> LocalClient:
        """Return an in-process client; without a user it may do everything."""
        return LocalClient(
            self.registry,
            user or User(MANAGER, groups=(MASTERS,)),
            field_manager=field_manager,
            read_path=self.front.read_path,
        )

    async def stop(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        # Requests end before the store closes, because they still write to it.
        await self.front.stop(STOP_GRACE_SECONDS)
        await self._close()

    async def _close(self) -> None:
        await self._upkeep.close()
        self._definitions.close()
        await self.store.close()


async def _store(settings: ServerSettings) -> SqliteStore:
    if settings.volatile:
        return SqliteStore.volatile()
    return await SqliteStore.open(settings.data_dir, reserve_bytes=settings.reserve_bytes)


async def _prepared(settings: ServerSettings) -> pki_module.Pki:
    return await asyncio.to_thread(
        pki_module.prepare, settings.data_dir, listen_address=settings.host, extra_names=settings.names
    )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _static_tokens(settings: ServerSettings) -> list[TokenAuthenticator]:
    if settings.token_file is None:
        return []
    return [StaticTokens(read_token_file(settings.token_file), TokenSettings().api_audiences)]
