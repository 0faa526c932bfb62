"""Address of the manager for hosts, as given on the command line: checked before anything is started.

A URL that no host could use is refused. One that only this machine can use is fine for hosts that are processes of this
machine, so it only causes a message; so does a name that does not resolve here, which hosts may well resolve.

Hosts are told to trust a set of CAs: always our own, and with it the one of --server-ca and the root of a certificate
of the user's own. So users can distribute a new authority before it is needed, and no host loses its connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography import x509

from remuda.apiserver.http.custom_certificate import Presented
from remuda.app.addresses import Address, shown, why_not
from remuda.app.process import StartRefused
from remuda.kube import chains
from remuda.providers.controlplane.artefacts.nano_bundles import Packing
from remuda.providers.shared.manager_address import Site

log = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - where nobody can be reached
_RESOLVE_SECONDS = 3.0


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Site options that `up` and `manager` share."""

    server_url: str = ""  # empty: derived from where it listens
    server_ca: Path | None = None  # of a certificate that is not ours: the user's, or of what stands before the manager
    tls_cert: Path | None = None  # the user's own certificate with its chain, and its key
    tls_key: Path | None = None
    assets: Path | None = None  # files for hosts
    artefacts: Path | None = None  # what nodes install distributions from; made when there is something to keep

    def name(self, listen: Address) -> str:
        """Return the name that the serving certificate must be valid for.

        Raises StartRefused for one that hosts could not use.
        """
        if not self.server_url and listen[0] in _EVERYWHERE:
            raise StartRefused(
                f"listening on {shown(listen)} does not say where hosts find this server: add --server-url "
                "https://NAME:PORT, or run without hosts, with --controllers=core"
            )
        url = self.server_url or f"https://{shown(listen)}"
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise StartRefused(f"--server-url {url} is no URL") from None
        if parts.scheme != "https" or not host:
            raise StartRefused(
                f"--server-url {url}: hosts talk to the server over https only, for example https://NAME:PORT"
            )
        if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise StartRefused(f"--server-url {url}: nothing may follow the host and its port")
        if host in _EVERYWHERE:
            raise StartRefused(
                f"--server-url {url}: no host can connect to {host}; give an address or a name of this machine"
            )
        return host

    def settled(self, listen: Address, ca_pem: bytes) -> Site:
        """With the port that is really listened on, and who vouches for the certificates that are shown there."""
        self.name(listen)
        url = (self.server_url or f"https://{shown(listen)}").rstrip("/")
        foreign = self._foreign_ca()
        site = Site(server_url=url, ca_pem=_one_newline(chains.bundle(foreign, ca_pem) if foreign else ca_pem))
        if site.only_here:
            log.info("hosts find this server at %s, which only this machine can: --server-url may say otherwise", url)
        return site

    def check(self) -> None:
        """Refuses files that cannot be used."""
        self._foreign_ca()
        if self.assets is not None and not self.assets.is_dir():
            raise StartRefused(f"--assets {self.assets} is not a directory")
        if self.artefacts is not None and self.artefacts.exists() and not self.artefacts.is_dir():
            raise StartRefused(f"--artefacts {self.artefacts} is not a directory")

    def presented(self, listen: Address) -> Presented | None:
        """The user's own certificate, fit to be shown where hosts and users look for this server. Refuses in words."""
        if self.tls_cert is None or self.tls_key is None:
            if self.tls_cert is not None or self.tls_key is not None:
                raise StartRefused("--tls-cert and --tls-key belong together: a certificate, and the key of it")
            return None
        host = self.name(listen) if self.server_url or listen[0] not in _EVERYWHERE else ""
        try:
            found = Presented(self.tls_cert, self.tls_key, host, self._foreign_ca())
        except chains.Unfit as unfit:
            raise StartRefused(f"--tls-cert: {unfit}") from None
        if found.chain.has_addresses and _is_one_address(listen[0]) and not found.chain.covers(listen[0]):
            raise StartRefused(
                f"--tls-cert {self.tls_cert} is for {', '.join(found.chain.names)}, and is shown to whoever connects "
                f"to an address: it must be for {listen[0]} of --listen, too"
            )
        return found

    def kept_artefacts(self, data_dir: Path | None) -> Packing | None:
        """Return the artefact store: at the given path, else in the data directory, if there is one."""
        place = self.artefacts or (data_dir / "artefacts" if data_dir is not None else None)
        return None if place is None else Packing(place.absolute())

    def _foreign_ca(self) -> bytes:
        if self.server_ca is None:
            return b""
        try:
            pem = self.server_ca.read_bytes()
            x509.load_pem_x509_certificates(pem)
        except OSError as error:
            raise StartRefused(f"--server-ca {self.server_ca} cannot be read: {error.strerror}") from None
        except ValueError:
            raise StartRefused(f"--server-ca {self.server_ca} has no certificate in PEM") from None
        return pem


def _one_newline(pem: bytes) -> bytes:
    return pem.rstrip(b"\n") + b"\n"


async def tell_of_unknown_name(site: Site) -> None:
    """Hosts may have another resolver than this machine, so it is no reason not to start."""
    parts = urlsplit(site.server_url)
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        why = why_not(error) if isinstance(error, OSError) and error.strerror else "no answer"
        log.warning(
            "the name %s of --server-url is not known here (%s): hosts must be able to resolve it",
            parts.hostname,
            why,
        )


def _is_one_address(host: str) -> bool:
    """One that others connect to: not loopback, not everywhere, not a name."""
    try:
        return host not in _EVERYWHERE and not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
