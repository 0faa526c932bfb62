"""Ports besides the API's, as in K3s: etcd, and the health of kubelet, controller manager and scheduler."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from remuda.apiserver.http.listener import Listener
from remuda.kube.web import Handler, Request, Response, header_block, text
from remuda.lab.nano import serving_certificates
from remuda.lab.nano.configuration import Configuration, FatalError
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.layout import NanoLayout
from remuda.lab.nano.membership_client import ClusterMember

log = logging.getLogger(__name__)

ETCD_CLIENTS = 2379
ETCD_METRICS = 2381
KUBELET = 10248
_COMPONENTS = {"kube-controller-manager": 10257, "kube-scheduler": 10259}
_PROBE_SECONDS = 2.0
_JSON = header_block([("Content-Type", "application/json")])


class Ports:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    async def listen(self, address: str, port: int, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a port. Raise FatalError."""
        listener = Listener(handler)
        try:
            await listener.start(address, port, tls)
        except OSError as error:
            raise FatalError(f"cannot listen on {address}:{port}: {error.strerror}") from None
        self._listeners.append(listener)

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.stop(0.1)


async def open_kubelet(ports: Ports, host: NanoHost, well: Callable[[], bool]) -> None:
    await ports.listen(host.loopback, KUBELET, _healthz(well))


async def open_etcd(ports: Ports, host: NanoHost, layout: NanoLayout, seat: ClusterMember, etcd_ca: bytes) -> None:
    def health(request: Request) -> Response:
        if request.path not in ("/health", "/readyz", "/livez"):
            return text(404, "404 page not found\n")
        if seat.standing().leader:
            return Response(200, b'{"health":"true","reason":""}', _JSON)
        return Response(503, b'{"health":"false","reason":"RAFT NO LEADER"}', _JSON)

    await ports.listen(host.loopback, ETCD_METRICS, health)
    await ports.listen(host.everywhere, ETCD_CLIENTS, health, _etcd_context(layout, etcd_ca))


async def open_component(
    ports: Ports, name: str, configuration: Configuration, host: NanoHost, layout: NanoLayout, names: Sequence[str]
) -> None:
    """Open the health port of a component that a stand-in lacks, with the certificate of its own flags."""
    flags = f"{name}-arg"
    certificate = configuration.argument(flags, "tls-cert-file")
    key = configuration.argument(flags, "tls-private-key-file")
    folder = configuration.argument(flags, "cert-dir")
    if certificate and key:
        pair = (host.path(certificate), host.path(key))
    elif folder:
        pair = serving_certificates.self_signed(host.path(folder), name, names, datetime.datetime.now(datetime.UTC))
    else:
        pair = (layout.tls / "serving-kube-apiserver.crt", layout.tls / "serving-kube-apiserver.key")
    port = secure_port(configuration, name)
    await ports.listen(host.loopback, port, _healthz(lambda: True), _context(*pair))


def secure_port(configuration: Configuration, name: str) -> int:
    """Return the secure port of a component. Raise FatalError."""
    port = configuration.argument(f"{name}-arg", "secure-port", str(_COMPONENTS[name]))
    if not port.isdigit():
        raise FatalError(f"{name}-arg: secure-port={port} is not a port")
    return int(port)


def is_probed(configuration: Configuration, name: str) -> bool:
    """Return whether the component listens on the port where the program checks its health."""
    return not configuration.flavour.health_ports_fixed or secure_port(configuration, name) == _COMPONENTS[name]


async def kill_again_and_again(
    name: str, configuration: Configuration, host: NanoHost, layout: NanoLayout, names: Sequence[str]
) -> None:
    """Simulate a component that does not answer its probe: it is started, killed, and started again."""
    while True:
        opened = Ports()
        try:
            await open_component(opened, name, configuration, host, layout, names)
            await asyncio.sleep(_PROBE_SECONDS)
        finally:
            await opened.close()
        log.warning("Container %s failed startup probe on port %d, will be restarted", name, _COMPONENTS[name])
        await asyncio.sleep(_PROBE_SECONDS)


def _healthz(well: Callable[[], bool]) -> Handler:
    def handle(request: Request) -> Response:
        if request.path not in ("/healthz", "/livez", "/readyz"):
            return text(404, "404 page not found\n")
        return text(200, "ok") if well() else text(500, "not ready\n")

    return handle


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise FatalError(f"{certificate} and {key} are not a certificate and its key: {error}") from None
    return context


def _etcd_context(layout: NanoLayout, etcd_ca: bytes) -> ssl.SSLContext:
    """Return etcd's TLS context, which requires a client certificate of etcd's own authority."""
    context = _context(layout.etcd_tls / "server-client.crt", layout.etcd_tls / "server-client.key")
    context.load_verify_locations(cadata=etcd_ca.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_REQUIRED
    return context
