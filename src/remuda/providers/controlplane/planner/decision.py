"""Decision of the planner: acts, each of which may be repeated or left half done, and the status to report.

The controller carries the acts out in order and then runs the planner again. No act depends on another one of the same
decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from remuda.kube.wait import Wait

Tier = Literal["bootstrap", "etcd", "control plane", "worker"]


class Mark(msgspec.Struct, frozen=True):
    """Makes a host the init node; every other host loses the mark."""

    host: str
    why: str


class Deliver(msgspec.Struct, frozen=True):
    """Gives a host a new plan."""

    host: str
    plan: bytes
    why: str  # for the event: "first plan", "kubernetesVersion v1.36.3+k3s1 → v1.36.4+k3s1"


class RunAgain(msgspec.Struct, frozen=True):
    """Asks a host to apply its plan once more: the last attempt failed, long enough ago."""

    host: str
    attempt: int


class RequestDrain(msgspec.Struct, frozen=True):
    host: str
    options: str


class RequestUncordon(msgspec.Struct, frozen=True):
    host: str
    options: str


class Hold(msgspec.Struct, frozen=True):
    """The deletion of a Machine is to wait for us: its host is a member of etcd, or may become one."""

    host: str


class Leave(msgspec.Struct, frozen=True):
    """Asks the distribution to remove the etcd member of a host that is being deleted."""

    host: str


class Expel(msgspec.Struct, frozen=True):
    """Remove a dead etcd member that belongs to no Machine, by deleting its Node, which makes the distribution remove
    the member.
    """

    node: str
    member: str  # etcd's name of it


class Forget(msgspec.Struct, frozen=True):
    """Delete a Node whose Machine was deleted while the cluster did not answer."""

    node: str


class Release(msgspec.Struct, frozen=True):
    """The deletion of a Machine may go on."""

    host: str
    why: str


Act = Mark | Deliver | RunAgain | RequestDrain | RequestUncordon | Hold | Leave | Expel | Forget | Release

Phase = Literal["waiting", "draining", "configuring", "failing", "uncordoning", "ready", "leaving"]


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one host: its phase, and what it waits for."""

    phase: Phase
    tier: Tier | None = None  # None: it is being deleted, or has no role
    wait: Wait | None = None
    up_to_date: bool = False  # it has applied its current desired plan


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    acts: Sequence[Act] = ()
    hosts: Mapping[str, HostStatus] = {}
    waits: Sequence[Wait] = ()  # the first one is reported; empty: every host is in its desired state
    held: Sequence[Wait] = ()  # steps that are not taken because they would do harm
    stage: str = ""  # "configuring etcd node(s) a,b": the current activity, in one line
    initialized: bool = False  # the control plane may be called initialized
    bootstrapped: bool = False
    provisioned: bool = False  # each role has a machine
    lost: Wait | None = None  # why the cluster cannot recover by itself: etcd is lost, or has no quorum
    look_again: float | None = None  # in so many seconds, even if nothing happens
