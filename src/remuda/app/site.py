"""Where hosts find the manager, as the command line says it: checked before anything is started.

A URL that no host could use is refused. One that only this machine can use is fine for hosts that are this machine's
processes, so it is only told of; so is a name that is not known here, which hosts may well know.

What hosts are told to trust is a set: our own CA always, with it the one of --server-ca and the root of a certificate
of the user's own. So one can hand out a new authority before it is needed, and strand nobody.
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

from remuda.apiserver.http.presented import Presented
from remuda.app.addresses import Address, shown, why_not
from remuda.app.process import Refused
from remuda.kube import chains
from remuda.providers.bootstrap.site import Site
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.controlplane.artefacts.packing import Packing

log = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - where nobody can be reached
_RESOLVE_SECONDS = 3.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What both `up` and `manager` are told of it."""

    server_url: str = ""  # empty: derived from where it listens
    server_ca: Path | None = None  # of a certificate that is not ours: the user's, or of what stands before the manager
    tls_cert: Path | None = None  # the user's own certificate with its chain, and its key
    tls_key: Path | None = None
    assets: Path | None = None  # files for hosts
    artefacts: Path | None = None  # what nodes install distributions from; made when there is something to keep

    def name(self, listen: Address) -> str:
        """What the serving certificate must be good for. Refuses what hosts could not use."""
        if not self.server_url and listen[0] in _EVERYWHERE:
            raise Refused(
                f"listening on {shown(listen)} does not say where hosts find this server: add --server-url "
                "https://NAME:PORT, or run without hosts, with --controllers=core"
            )
        url = self.server_url or f"https://{shown(listen)}"
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise Refused(f"--server-url {url} is no URL") from None
        if parts.scheme != "https" or not host:
            raise Refused(
                f"--server-url {url}: hosts talk to the server over https only, for example https://NAME:PORT"
            )
        if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise Refused(f"--server-url {url}: nothing may follow the host and its port")
        if host in _EVERYWHERE:
            raise Refused(
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
            raise Refused(f"--assets {self.assets} is not a directory")
        if self.artefacts is not None and self.artefacts.exists() and not self.artefacts.is_dir():
            raise Refused(f"--artefacts {self.artefacts} is not a directory")

    def presented(self, listen: Address) -> Presented | None:
        """The user's own certificate, fit to be shown where hosts and users look for this server. Refuses in words."""
        if self.tls_cert is None or self.tls_key is None:
            if self.tls_cert is not None or self.tls_key is not None:
                raise Refused("--tls-cert and --tls-key belong together: a certificate, and the key of it")
            return None
        host = self.name(listen) if self.server_url or listen[0] not in _EVERYWHERE else ""
        try:
            found = Presented(self.tls_cert, self.tls_key, host, self._foreign_ca())
        except chains.Unfit as unfit:
            raise Refused(f"--tls-cert: {unfit}") from None
        if found.chain.has_addresses and _is_one_address(listen[0]) and not found.chain.covers(listen[0]):
            raise Refused(
                f"--tls-cert {self.tls_cert} is for {', '.join(found.chain.names)}, and is shown to whoever connects "
                f"to an address: it must be for {listen[0]} of --listen, too"
            )
        return found

    def kept_artefacts(self, data_dir: Path | None) -> Artefacts | None:
        """Where they are said to be, else in the data directory, if there is one."""
        place = self.artefacts or (data_dir / "artefacts" if data_dir is not None else None)
        return None if place is None else Packing(place.absolute())

    def _foreign_ca(self) -> bytes:
        if self.server_ca is None:
            return b""
        try:
            pem = self.server_ca.read_bytes()
            x509.load_pem_x509_certificates(pem)
        except OSError as error:
            raise Refused(f"--server-ca {self.server_ca} cannot be read: {error.strerror}") from None
        except ValueError:
            raise Refused(f"--server-ca {self.server_ca} has no certificate in PEM") from None
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
