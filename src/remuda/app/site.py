"""Address of the manager for hosts, as given on the command line: checked before anything is started.

A URL that no host could use is refused. One that only this machine can use is fine for hosts that are processes of this
machine, so it only causes a message; so does a name that does not resolve here, which hosts may well resolve.

Hosts trust a set of CAs: always our own, the one of --server-ca, and the root of the user's own certificate. So users
can distribute a new authority before it is needed, and no host loses its connection.
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

from remuda.apiserver.http.custom_certificate import CustomCertificate
from remuda.app.process import Address, StartRefused, shown, why_not
from remuda.kube import chains
from remuda.providers.controlplane.artefacts.nano_bundles import Packing
from remuda.providers.shared.manager_address import Site

log = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - where nobody can be reached
_RESOLVE_SECONDS = 3.0


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Site options that `up` and `manager` share."""

    server_url: str = ""  # empty: derived from where it listens
    server_ca: Path | None = None  # CA of a certificate that is not ours: the user's, or a load balancer's
    tls_cert: Path | None = None  # the user's own certificate with its chain, and its key
    tls_key: Path | None = None
    assets: Path | None = None  # files for hosts
    artefacts: Path | None = None  # binaries and images for nodes; created by the first `artefacts add`

    def name(self, listen: Address) -> str:
        """Return the name that the serving certificate must be valid for.

        Raises StartRefused for one that hosts could not use.
        """
        if not self.server_url and listen[0] in _EVERYWHERE:
            raise StartRefused(
                f"hosts cannot reach this server at the listening address {shown(listen)}: add --server-url "
                "https://NAME:PORT, or run without hosts, with --controllers=core"
            )
        url = self.server_url or f"https://{shown(listen)}"
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise StartRefused(f"--server-url {url} is not a valid URL") from None
        if parts.scheme != "https" or not host:
            raise StartRefused(f"--server-url {url}: must be an https URL, for example https://NAME:PORT")
        if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise StartRefused(f"--server-url {url}: must consist of host and port only, for example https://NAME:PORT")
        if host in _EVERYWHERE:
            raise StartRefused(
                f"--server-url {url}: no host can connect to {host}; use an address or a name of this machine"
            )
        return host

    def only_here(self, listen: Address) -> str:
        """Return the URL that hosts are given, if only hosts on this machine can use it; else an empty string."""
        url = self.server_url or f"https://{shown(listen)}".removesuffix(":0")
        return Site(server_url=url, ca_pem=b"").only_here

    def settled(self, listen: Address, ca_pem: bytes) -> Site:
        """Return the Site with the actual port and the CAs of the certificates that are served there."""
        self.name(listen)
        url = (self.server_url or f"https://{shown(listen)}").rstrip("/")
        foreign = self._foreign_ca()
        site = Site(server_url=url, ca_pem=_one_newline(chains.bundle(foreign, ca_pem) if foreign else ca_pem))
        if site.only_here:
            log.info("only hosts on this machine reach this server at %s; for other hosts set --server-url", url)
        return site

    def check(self) -> None:
        """Raise StartRefused for files that cannot be used."""
        self._foreign_ca()
        if self.assets is not None and not self.assets.is_dir():
            raise StartRefused(f"--assets {self.assets} is not a directory")
        if self.artefacts is not None and self.artefacts.exists() and not self.artefacts.is_dir():
            raise StartRefused(f"--artefacts {self.artefacts} is not a directory")

    def presented(self, listen: Address) -> CustomCertificate | None:
        """Return the user's own certificate, checked against the names that clients use. Raises StartRefused."""
        if self.tls_cert is None or self.tls_key is None:
            if self.tls_cert is not None or self.tls_key is not None:
                raise StartRefused("--tls-cert and --tls-key must be given together: a certificate and its key")
            return None
        host = self.name(listen) if self.server_url or listen[0] not in _EVERYWHERE else ""
        try:
            found = CustomCertificate(self.tls_cert, self.tls_key, host, self._foreign_ca())
        except chains.UnusableChain as unfit:
            raise StartRefused(f"--tls-cert: {unfit}") from None
        if found.chain.has_addresses and _is_one_address(listen[0]) and not found.chain.covers(listen[0]):
            raise StartRefused(
                f"--tls-cert {self.tls_cert} is valid for {', '.join(found.chain.names)}; clients that connect by "
                f"address also get it, so it must be valid for {listen[0]} of --listen, too"
            )
        return found

    def artefact_store(self, data_dir: Path | None) -> Packing | None:
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
            raise StartRefused(f"cannot read --server-ca {self.server_ca}: {error.strerror}") from None
        except ValueError:
            raise StartRefused(f"--server-ca {self.server_ca} contains no PEM certificate") from None
        return pem


def _one_newline(pem: bytes) -> bytes:
    # Hosts compare a checksum of these bytes. Rancher computes it over a PEM with exactly one final newline.
    return pem.rstrip(b"\n") + b"\n"


async def warn_of_unknown_name(site: Site) -> None:
    """Warn if the server's name does not resolve here. Hosts may use another resolver, so this is not an error."""
    parts = urlsplit(site.server_url)
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        why = why_not(error) if isinstance(error, OSError) and error.strerror else "no answer"
        log.warning(
            "cannot resolve %s of --server-url on this machine (%s); hosts must be able to resolve it",
            parts.hostname,
            why,
        )


def _is_one_address(host: str) -> bool:
    """Return whether this is one address that others can connect to: not loopback, a wildcard or a name."""
    try:
        return host not in _EVERYWHERE and not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
