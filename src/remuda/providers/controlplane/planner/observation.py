"""Input of the planner: every fact it decides on, gathered by the controller before each run.

A host is a Machine together with its plan Secret. Roles, the init mark, labels and addresses come from objects that no
host can write; only results come from the plan Secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from remuda.capi.types import Endpoint
from remuda.kube.selectors import LabelSelector
from remuda.kube.wait import Wait
from remuda.providers.shared.distros import Distro, Version
from remuda.providers.shared.types.configuration import S3, Taint
from remuda.providers.shared.types.controlplane import Installer, RKEControlPlaneSpec

PlanState = Literal["", "pending", "in-progress", "succeeded", "failed"]


class Roles(msgspec.Struct, frozen=True):
    etcd: bool = False
    control_plane: bool = False
    worker: bool = False

    @property
    def server(self) -> bool:
        """Runs the distribution's server: everything but a mere worker."""
        return self.etcd or self.control_plane

    @property
    def only_etcd(self) -> bool:
        return self.etcd and not self.control_plane and not self.worker

    def __str__(self) -> str:
        named = (("etcd", self.etcd), ("control plane", self.control_plane), ("worker", self.worker))
        return ", ".join(name for name, held in named if held) or "no role"


class EtcdMember(msgspec.Struct, frozen=True):
    """Member of etcd, as one of the members sees it."""

    name: str  # etcd's name of it: the node's name and a suffix
    address: str
    learner: bool = False
    healthy: bool = True


class UnitStatus(msgspec.Struct, frozen=True):
    """State of the distribution's unit where it is not active, as the host reports it."""

    state: str  # as systemd calls it: activating, failed
    error: str = ""  # the last error that its program logged


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a host's plan Secret: the plan it was given, and the results it has reported."""

    secret: str = ""  # its name; empty: there is none yet
    plan: bytes = b""  # its last plan; empty: none yet
    delivered: float | None = None  # when
    state: PlanState = ""
    applied: bytes = b""  # the plan it has applied last; equal to `plan` when that has succeeded
    superseded: bool = False  # `plan` took the place of one that had not succeeded, and may have been half done
    failures: int = 0  # of this plan, in a row
    failed_message: str = ""
    last_apply: float | None = None
    probes: Mapping[str, bool] = {}  # of this plan, as far as reported: whether healthy
    members: Sequence[EtcdMember] | None = None  # members of etcd, as this host sees them; None: not reported
    unit: UnitStatus | None = None  # None: it is active, or nothing is known of it


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Drain handshake: annotations of the plan Secret. All values repeat the request byte for byte."""

    requested: str = ""
    done: str = ""
    uncordon: str = ""
    error: str = ""


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    """As the cluster's own API shows it."""

    name: str
    ready: bool = False
    kubelet_version: str = ""
    voter: bool | None = None  # its report about its own etcd member; None: none
    leaving: bool = False  # its etcd member was asked to leave
    left: bool = False  # its etcd member has left


class ObservedHost(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of the Machine
    namespace: str
    uid: str
    created: float
    roles: Roles
    pool: str = ""
    labels: Mapping[str, str] = {}  # of the Machine: what selectors are matched against
    node_name: str = ""  # what its Node is to be called
    node_labels: Mapping[str, str] = {}
    node_taints: Sequence[Taint] = ()
    provider_id: str = ""
    internal_addresses: Sequence[str] = ()
    external_addresses: Sequence[str] = ()
    machine_id: str = ""
    init: bool = False  # it already is the init node
    connected: bool = False  # its agent has called
    connected_since: float | None = None  # when it first did; None: not known
    infrastructure_ready: bool = False
    failed: str = ""  # why the planner no longer counts on it
    deleting_since: float | None = None
    drained: bool = False  # being deleted, and Cluster API is through with draining it
    held: bool = False  # its deletion waits for us
    force_remove: bool = False
    unsettled_since: float | None = None  # when its Machine ceased to be reconciled; None: it is, or nothing is known
    report: PlanReport = PlanReport()
    drain: Drain = Drain()
    node: ObservedNode | None = None  # None: not there, or the API cannot be asked
    silent_since: float | None = None  # when its tunnel ended; None: it is open, or nothing is known of it
    waits: Sequence[Wait] = ()  # what its infrastructure and bootstrap wait for

    @property
    def deleting(self) -> bool:
        return self.deleting_since is not None

    @property
    def planned(self) -> bool:
        return bool(self.report.plan)

    def __str__(self) -> str:
        return f"Machine {self.namespace}/{self.name}"


class Orphan(msgspec.Struct, frozen=True):
    """Node that is not ready and whose Machine is deleted."""

    node: str
    etcd: bool  # it may still be a member


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Machines that were asked for."""

    name: str
    roles: Roles
    replicas: int


class Tokens(msgspec.Struct, frozen=True):
    server: str
    agent: str
    tunnel: bytes = b""  # the key that tokens of tunnels are made with; never on a host

    def __repr__(self) -> str:
        return "<Tokens>"


class Tunnel(msgspec.Struct, frozen=True, kw_only=True):
    """Server to which nodes open their tunnels."""

    cluster: str  # the id that the manager knows the cluster by
    url: str  # wss://…
    manager: str = ""  # https://…, the same server as agents know it
    authority: bytes  # PEM of the CA of that server


class RegistryAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials of one registry host, from the Secrets named in the spec."""

    username: str = ""
    password: str = ""
    auth: str = ""
    identity_token: str = ""
    certificate: str = ""  # PEM
    key: str = ""
    authority: str = ""

    def __repr__(self) -> str:
        return "<RegistryAccess>"


class ExtraFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    content: bytes
    permissions: str = ""
    dynamic: bool = False


class ExtraFiles(msgspec.Struct, frozen=True):
    """Files of one entry of machineSelectorFiles."""

    selector: LabelSelector | None  # None: all
    files: Sequence[ExtraFile]


class S3Access(msgspec.Struct, frozen=True, kw_only=True):
    """S3 settings of the spec, completed from the credential."""

    s3: S3
    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        return "<S3Access>"


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that concern all hosts. Objects that a spec only names are included with their contents."""

    name: str
    namespace: str
    uid: str
    created: float
    spec: RKEControlPlaneSpec
    distro: Distro
    version: Version
    renderer: int  # which way plans are written
    installer: Installer
    tokens: Tokens
    authorities: Mapping[str, bytes]  # below the data directory of a server: path → PEM; there before its first start
    config_generation: int = 0
    endpoint: Endpoint | None = None  # endpoint in front of the servers
    registries: Mapping[str, RegistryAccess] = {}
    files: Sequence[ExtraFiles] = ()
    config_files: Mapping[str, str] = {}  # contents of config values in other objects (secret://ns:name)
    s3: S3Access | None = None
    tunnel: Tunnel | None = None  # None: the manager accepts no tunnels
    init_machine_id: str = ""  # the user's choice of init node

    def __repr__(self) -> str:
        return f"<Cluster {self.namespace}/{self.name}>"


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    cluster: ClusterFacts
    hosts: Sequence[ObservedHost]  # by name
    pools: Sequence[Pool] = ()  # as asked for
    now: float
    initialized: bool = False
    infrastructure_ready: bool = True
    paused: str = ""  # why; empty: not
    deleting: bool = False
    reachable: bool = False  # the cluster's own API answers
    unreachable: str = ""  # why not
    unanswered_since: float | None = None  # when the API answered last; None: it answers
    lost_before: str = ""  # previous message about a lost quorum
    orphans: Sequence[Orphan] = ()  # as long as the API answers
    problems: Sequence[Wait] = ()  # missing objects that the spec refers to: until they exist, no plan changes
