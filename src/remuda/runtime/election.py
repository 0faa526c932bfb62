"""Leader election by a Lease: of several processes, one at a time does the work.

It works as client-go does, so that both can compete for the same Lease. Clocks of machines are never compared: a
follower records on its own clock when the Lease last changed, and acquires it when it has not changed for the duration
that its holder set. The holder stops earlier than that (`renew_seconds` < `lease_seconds`), so two replicas never lead
at once. The times in the Lease are only informative.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import Any

import msgspec

from remuda.kube import clock, random_source
from remuda.kube.client import Client
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from remuda.kube.objects import Key, Kind, Object, Part
from remuda.runtime import ControllerRuntimeError
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

log = logging.getLogger(__name__)

TAKE = step("election.take-lease", "acquires or renews the Lease of the leader")
RELEASE = step("election.release-lease", "releases the Lease, so that another replica can acquire it at once")


class LeaseSpec(Part):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Object):
    spec: LeaseSpec = LeaseSpec()


LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases", Lease)


class ElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    # The defaults are those of kube-controller-manager.
    lease_seconds: float = 15.0  # a follower waits this long after the last renewal
    renew_seconds: float = 10.0  # the leader stops if it could not renew for this long
    retry_seconds: float = 2.0  # between two attempts, of either

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds > self.retry_seconds > 0:
            raise ValueError(
                "lease_seconds must be greater than renew_seconds, and renew_seconds greater than retry_seconds"
            )


class LeadershipLost(ControllerRuntimeError):
    """Raised when another replica may be the leader: everything that acts on the outside world must stop at once."""


def own_identity() -> str:
    """Return the holder identity of this process in a Lease: it names the host, and is unique to the process."""
    return f"{socket.gethostname()}_{os.getpid()}_{random_source.uid()}"


class Election:
    """`campaign` until this process leads, `hold` while it works, `resign` when it has stopped working."""

    def __init__(
        self, client: Client, lease: Key, *, identity: str = "", settings: ElectionSettings | None = None
    ) -> None:
        self._client = client
        self._key = lease
        self._settings = settings or ElectionSettings()
        self._seen: Lease | None = None
        self._seen_at = 0.0  # on this process's own clock
        self._renewed_at = 0.0
        self._answered_at = _now()
        self._error = "no attempt yet"
        self.identity = identity or own_identity()
        self.leading = False

    @property
    def holder(self) -> str:
        """Return the identity of the leader when the Lease was last read."""
        return self._seen.spec.holder_identity if self._seen is not None else ""

    def problem(self) -> str:
        """Return why this process cannot know the current leader; empty if it can."""
        seconds = _now() - self._answered_at
        if seconds < self._settings.lease_seconds:
            return ""
        return f"lease {self._key} has been unreachable for {seconds:.0f} s: {self._error}"

    async def campaign(self) -> None:
        """Return once this process leads."""
        while True:
            self.leading = await self._attempt(self._settings.renew_seconds)
            if self.leading:
                break
            await asyncio.sleep(self._settings.retry_seconds * random_source.between(1.0, 1.2))
        log.info("%s acquired lease %s and leads", self.identity, self._key)

    async def hold(self) -> str:
        """Renew the Lease until that has failed for too long; then return the reason."""
        try:
            while True:
                await asyncio.sleep(min(self._settings.retry_seconds, self._seconds_left()))
                # The process may have been suspended during the sleep. An attempt may take no longer than the time that
                # is left.
                left = self._seconds_left()
                # A failed renewal is retried until the time is up. A Lease that another replica holds ends the
                # leadership at once.
                if not left or (not await self._attempt(left) and self.holder != self.identity):
                    return f"lease {self._key} could not be renewed; it is {self._describe_holder()}"
        finally:
            self.leading = False

    def permit(self) -> None:
        """Raise Retryable unless the Lease is still valid. Called before each write of the leader: a process that was
        suspended for a while must not act on old knowledge."""
        if not self._seconds_left():
            raise Retryable(f"lease {self._key} has expired, another replica may lead")

    def _seconds_left(self) -> float:
        """Return the seconds until this process must stop, unless it renews the Lease."""
        return max(0.0, self._renewed_at + self._settings.renew_seconds - _now())

    def _describe_holder(self) -> str:
        return f"held by {self.holder}" if self.holder not in ("", self.identity) else "possibly free"

    async def resign(self) -> None:
        """Release the Lease if this process holds it, so that no replica has to wait for its expiry. Call it only after
        all work has stopped."""
        self.leading = False
        try:
            async with asyncio.timeout(self._settings.retry_seconds):
                lease = await self._read_lease()
                if lease is not None and lease.spec.holder_identity == self.identity:
                    async with RELEASE:
                        # As client-go does: 1 is the shortest duration that the API server accepts.
                        await self._patch(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except (StatusError, OSError, TimeoutError) as error:
            log.info("cannot release lease %s, it will expire: %s", self._key, error)

    async def _attempt(self, seconds: float) -> bool:
        """Try to acquire or renew the Lease; return whether this process holds it."""
        began = _now()
        try:
            async with asyncio.timeout(seconds):
                taken = await self._take()
        except (Conflict, AlreadyExists):  # another process was faster
            taken = False
        except (StatusError, OSError, TimeoutError) as error:
            self._error = str(error) or "no answer in time"
            log.warning("cannot acquire or renew lease %s: %s", self._key, self._error)
            return False
        self._answered_at = _now()
        if taken:
            # From the start of the request: other replicas see the renewal at this moment or later, so their wait ends
            # after this process has stopped.
            self._renewed_at = began
        return taken

    async def _take(self) -> bool:
        if self.leading and self._seen is not None and self.holder == self.identity:
            with contextlib.suppress(Conflict, AlreadyExists, NotFound):
                await self._renew(self._seen)  # without a read: no other replica writes it while we hold it
                return True
        lease = await self._read_lease()
        if lease is None:
            await self._create()
        elif lease.spec.holder_identity == self.identity:
            await self._renew(lease)
        elif self._is_free(lease):
            await self._write(lease, self._claim(lease.spec.lease_transitions + 1))
        else:
            return False
        return True

    def _is_free(self, lease: Lease) -> bool:
        spec = lease.spec
        return not spec.holder_identity or _now() >= self._seen_at + spec.lease_duration_seconds

    async def _read_lease(self) -> Lease | None:
        try:
            value = await self._client.get(LEASE.target, *self._key)
        except NotFound:
            return None
        return self._remember(value)

    def _remember(self, value: bytes) -> Lease:
        lease = LEASE.decode(value)
        # Only a change of the spec is a renewal: a change of a label or of managedFields must not prolong the Lease.
        if self._seen is None or lease.spec != self._seen.spec:
            self._seen_at = _now()
        self._seen = lease
        return lease

    def _claim(self, transitions: int) -> dict[str, Any]:
        now = clock.now_micro()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._settings.lease_seconds),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    async def _create(self) -> None:
        lease = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": {"namespace": self._key.namespace, "name": self._key.name},
            "spec": self._claim(0),
        }
        async with TAKE:
            self._remember(await self._client.create(LEASE.target, self._key.namespace, lease))

    async def _renew(self, lease: Lease) -> None:
        await self._write(lease, {"renewTime": clock.now_micro()})

    async def _write(self, lease: Lease, spec: dict[str, Any]) -> None:
        async with TAKE:
            await self._patch(lease, spec)

    async def _patch(self, lease: Lease, spec: dict[str, Any]) -> None:
        """Patch the Lease only if it has not changed: of two replicas that try, one wins."""
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        self._remember(await self._client.patch(LEASE.target, *self._key, patch))


def _now() -> float:
    return asyncio.get_running_loop().time()
