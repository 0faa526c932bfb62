"""Where hosts find the manager, as the command line says it: checked before anything is started.

A URL that no host could use is refused. One that only this machine can use is fine for hosts that are this machine's
processes, so it is only told of.
"""

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography import x509

from remuda.app.addresses import Address, shown
from remuda.app.process import Refused
from remuda.providers.bootstrap.site import Site
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.controlplane.artefacts.packing import Packing

log = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - where nobody can be reached


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What both `up` and `manager` are told of it."""

    server_url: str = ""  # empty: derived from where it listens
    server_ca: Path | None = None  # of what stands before the manager and has a certificate of its own
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
        """With the port that is really listened on, and the CA of our own certificate."""
        self.name(listen)
        url = (self.server_url or f"https://{shown(listen)}").rstrip("/")
        if _is_loopback(urlsplit(url).hostname or ""):
            log.info("hosts find this server at %s, which only this machine can: --server-url may say otherwise", url)
        return Site(server_url=url, ca_pem=_one_newline(self._foreign_ca() or ca_pem))

    def check(self) -> None:
        """Refuses files that cannot be used."""
        self._foreign_ca()
        if self.assets is not None and not self.assets.is_dir():
            raise Refused(f"--assets {self.assets} is not a directory")
        if self.artefacts is not None and self.artefacts.exists() and not self.artefacts.is_dir():
            raise Refused(f"--artefacts {self.artefacts} is not a directory")

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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
