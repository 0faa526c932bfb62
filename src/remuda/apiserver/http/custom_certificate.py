"""Serving certificate from the user's files, used beside the server's own certificate.

It is checked before the server starts. The name that a client requests (SNI) selects the certificate: the user's if it
is valid for the name, otherwise the server's own, so that connections over loopback keep working. Clients that send no
name have connected to an IP address, and get the user's certificate if it contains any IP address.

The server checks the files for changes during handshakes. Changed files are checked, and the new certificate is used
from the next handshake on. Invalid files are logged once, and the previous certificate stays in use.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import stat
import time
from collections.abc import Callable
from pathlib import Path

from remuda.kube import chains, clock
from remuda.kube.chains import Chain, UnusableChain
from remuda.kube.http.tls import load_pair

log = logging.getLogger(__name__)

_WARN_DAYS = 30
_LOOK_SECONDS = 5.0
_DAY_SECONDS = 24 * 3600.0

Seen = tuple[tuple[int, int, int], ...]


class CustomCertificate:
    """Load and check the certificate. `host` is the name that clients use, `authorities` the CAs that they should
    trust; empty: the root of the chain. Raise UnusableChain.
    """

    def __init__(self, certificate: Path, key: Path, host: str, authorities: bytes = b"") -> None:
        self._certificate = certificate
        self._key = key
        self._host = host
        self._seen = self._look()
        self.chain = self._read()
        self.authorities = authorities or self.chain.root
        if not self.authorities:
            raise UnusableChain(
                f"{certificate} does not end with the root that vouches for it, which is what hosts and kubeconfigs "
                "trust: append that certificate to the file, or name its file with --server-ca"
            )
        self._judge(self.chain)
        self._context: ssl.SSLContext
        self._make: Callable[[], ssl.SSLContext]
        self._looked = self._warned = 0.0

    def beside(self, own: ssl.SSLContext, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return `own`, changed to select this certificate for its clients. `make` creates a similar context without a
        certificate.
        """
        self._make = make
        self._context = self._with(self.chain)
        self._warn()
        self._warn_of_stricter()
        own.sni_callback = self._choose
        return own

    def trusted(self, own: bytes) -> bytes:
        """Return the PEM of all CAs that clients must trust: for the server's own certificate and for this one."""
        return chains.bundle(own, self.authorities)

    def is_shown_to(self, name: str | None) -> bool:
        """Return whether a client that sends this server name (SNI), or none, is shown this certificate."""
        return self.chain.covers(name) if name else self.chain.has_addresses

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        self._refresh()
        if self.is_shown_to(name):
            connection.context = self._context

    # -- the files -----------------------------------------------------------------------------------------------

    def _read(self) -> Chain:
        try:
            pem = self._certificate.read_bytes()
        except OSError as error:
            raise UnusableChain(f"{self._certificate} cannot be read: {error.strerror}") from None
        try:
            if self._key.stat().st_mode & stat.S_IROTH:
                raise UnusableChain(f"{self._key} can be read by everybody on this machine: chmod o-r {self._key}")
            key_pem = self._key.read_bytes()
        except OSError as error:
            raise UnusableChain(f"{self._key} cannot be read: {error.strerror}") from None
        try:
            return chains.parse(pem, key_pem)
        except UnusableChain as unfit:
            raise UnusableChain(f"{self._certificate}, {self._key}: {unfit}") from None

    def _judge(self, chain: Chain) -> None:
        try:
            chains.judge(chain, self._host, self.authorities, _now())
        except UnusableChain as unfit:
            raise UnusableChain(f"{self._certificate}: {unfit}") from None

    def _with(self, chain: Chain) -> ssl.SSLContext:
        context = self._make()
        load_pair(context, chain.pem, chain.key_pem, str(self._certificate))
        return context

    def _look(self) -> Seen:
        """Return a fingerprint of the files that changes when they do. Follows symlinks: renewal tools switch them."""
        found = []
        for path in (self._certificate, self._key):
            try:
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        self._warn()
        seen = self._look()
        if seen == self._seen:
            return
        # Also for invalid files: they are then logged once, and not at every handshake.
        self._seen = seen
        try:
            chain = self._read()
            self._judge(chain)
            self._context, self.chain = self._with(chain), chain
        except Exception as error:  # no connection may fail because of an invalid certificate
            log.warning("new certificate %s rejected; still serving the previous one: %s", *self._file_and_error(error))
            return
        self._warn_of_stricter()
        log.info("%s was renewed: valid until %s", self._certificate, self.chain.leaf.not_valid_after_utc)

    def _file_and_error(self, error: Exception) -> tuple[Path, str]:
        return self._certificate, str(error).removeprefix(f"{self._certificate}: ")

    def _warn(self) -> None:
        """Warn once a day about an expiring certificate, when clients connect."""
        now = clock.time()
        left = self.chain.days_left(_now())
        if left < _WARN_DAYS and now - self._warned >= _DAY_SECONDS:
            self._warned = now
            log.warning(
                "%s expires in %d days, on %s; replace the files with a renewed certificate, no restart is needed",
                self._certificate,
                left,
                f"{self.chain.leaf.not_valid_after_utc:%Y-%m-%d}",
            )

    def _warn_of_stricter(self) -> None:
        if why := chains.refusal(self.chain, self._host, self.authorities, strict=True):
            log.warning(
                "%s: hosts with Python 3.13 or newer verify more strictly and would reject it: %s",
                self._certificate,
                why,
            )


def _now() -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.time(), datetime.UTC)
