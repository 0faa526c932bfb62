"""Interface of drivers. A driver is the only part that knows one kind of infrastructure.

A driver runs in a Job: one instance serves one order, in a process that may be killed at any moment and restarted. So
`create` is idempotent by the order's name and tags: it looks for existing objects before it creates any, and finds and
finishes those that a killed attempt left half made; it never creates one twice. `remove` succeeds when there is nothing
to remove, and also removes half-made objects.

Users read all messages of a driver (`say`, errors): use their words, no secrets, no tracebacks. `DriverError` is for
errors that may pass (a quota, a time-out); `BadOptions` for those that last until a user changes the options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import msgspec

from remuda.kube.objects import Key, Part
from remuda.providers import ProviderError

ServerState = Literal["starting", "running", "stopped", "failed"]
AddressType = Literal["InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname"]

# Tags on every server of ours, where the infrastructure has tags.
TAG_OWNER = "remuda-owner"  # which management plane
TAG_CLUSTER = "remuda-cluster"  # namespace/name of its Cluster
TAG_MACHINE = "remuda-machine"  # namespace/name of its <Driver>Machine
DIRECTORY = "directory"  # key of a `Record`: where a host is that is a directory of this machine
TAG_UID = "remuda-uid"  # of its <Driver>Machine: what makes a create idempotent


class DriverError(ProviderError):
    """The infrastructure refused or failed; a retry may succeed. The message is for users."""


class BadOptions(DriverError):
    """The options or credentials are invalid; a retry cannot succeed."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """Rights that a driver's Jobs have on the machine of our job runner. Without any, a Job runs as a user of its own,
    who sees nothing of the manager's data and nothing of other Jobs."""

    root: bool = False  # containers, networks, mounts
    host_files: bool = False  # files and processes in `Context.directory`, which belong to the manager's user

    @property
    def rights(self) -> tuple[str, ...]:
        return tuple(name for name in self.__struct_fields__ if getattr(self, name))


class Options(Part):
    """Base of a driver's options: one field per option, `Annotated[type, Field("What it is.", …)] = default`.

    They are the one source of the driver's schemas, flags and docs. A secret one has `format="password"`. Every field
    has a default, as in every Part; what must be given has `required=True`."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"  # a secret may be among them


class Address(msgspec.Struct, frozen=True):
    type: AddressType
    address: str


class SshAccess(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    port: int = 22
    private_key: str = ""  # OpenSSH or PEM; goes into the machine-state Secret, never anywhere else
    host_keys: Sequence[str] = ()  # "ssh-ed25519 AAAA…", pinned; empty: not known, the first one seen is pinned

    def __repr__(self) -> str:
        return f"<SshAccess {self.user}, port {self.port}>"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server as the infrastructure has it now."""

    id: str  # of the infrastructure
    name: str
    state: ServerState
    provider_id: str = ""  # what the Node's spec.providerID will be
    addresses: Sequence[Address] = ()
    failure_domain: str = ""
    ssh: SshAccess | None = None
    tags: Mapping[str, str] = {}
    bootstrapped: bool = False  # the driver has run the script itself, to its good end


class Order(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Order for one Job: what to do for which machine. Written by the machine controller, read by the Job."""

    driver: str
    action: Literal["create", "remove"]
    name: str  # of the server: deterministic, a DNS label
    hostname: str
    namespace: str
    machine: str  # name of the <Driver>Machine
    uid: str  # of the <Driver>Machine
    cluster: str  # name of the Cluster, in the same namespace
    owner: str  # which management plane: uid of its kube-system namespace
    options: Mapping[str, Any] = {}  # as in the spec of the <Driver>Machine
    state_secret: str = ""
    state_namespace: str = ""  # of that Secret, if it is not the machine's: see `protection`
    program: Mapping[str, str] = {}  # of a driver that is a program: how it is had (url, checksum, path)
    network: Mapping[str, str] = {}  # what the same driver has made for the cluster: `ClusterInfrastructure.network`
    local_addresses: bool = False  # an administrator lets the driver connect to this machine: see `addresses`

    def __repr__(self) -> str:
        return f"<Order {self.action} {self.name}>"

    @property
    def state_key(self) -> Key:
        return Key(self.state_namespace or self.namespace, self.state_secret)

    @property
    def tags(self) -> dict[str, str]:
        return {
            TAG_OWNER: self.owner,
            TAG_CLUSTER: f"{self.namespace}/{self.cluster}",
            TAG_MACHINE: f"{self.namespace}/{self.machine}",
            TAG_UID: self.uid,
        }


class Record(Protocol):
    """State that a driver keeps between Jobs: a small JSON object in the state Secret, and beside it a private key,
    which no cache of a management plane ever holds."""

    @property
    def value(self) -> Mapping[str, Any]: ...

    @property
    def private_key(self) -> str: ...

    async def save_private_key(self, private_key: str) -> None:
        """Store the private key durably."""

    async def save(self, value: Mapping[str, Any]) -> None:
        """Durable when it returns. Intent is recorded before the infrastructure is asked."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs and helpers of a driver besides its options."""

    credentials: Mapping[str, str]  # by the names of options
    record: Record
    say: Callable[[str], None]  # progress, for the Job's log
    directory: Path  # local drivers keep their servers below it; the same for every Job of one management plane

    def __repr__(self) -> str:
        return f"<Context {self.directory}>"


O = TypeVar("O", bound=Options)  # noqa: E741


# ---- for a cluster as a whole ----------------------------------------------------------------------------------------


class ClusterOrder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Order for one Job: what to do for which cluster. Written by the RKECluster controller, read by the Job."""

    driver: str
    action: Literal["ensure", "remove"]
    name: str  # of what is made: deterministic, a DNS label, no other cluster's
    namespace: str
    cluster: str  # name of the RKECluster
    uid: str  # of the RKECluster
    owner: str  # which management plane: uid of its kube-system namespace
    options: Mapping[str, Any] = {}  # as in the spec of the RKECluster
    backends: Sequence[str] = ()  # addresses of the control plane's machines: what a balancer stands before
    ports: Sequence[int] = ()  # of those machines; the first is the API's
    state_secret: str = ""
    state_namespace: str = ""  # of that Secret, if it is not the RKECluster's

    def __repr__(self) -> str:
        return f"<ClusterOrder {self.action} {self.name}>"

    @property
    def state_key(self) -> Key:
        return Key(self.state_namespace or self.namespace, self.state_secret)

    @property
    def tags(self) -> dict[str, str]:
        return {TAG_OWNER: self.owner, TAG_CLUSTER: f"{self.namespace}/{self.cluster}", TAG_UID: self.uid}


class ClusterEndpoint(msgspec.Struct, frozen=True):
    host: str
    port: int


class ClusterInfrastructure(msgspec.Struct, frozen=True, kw_only=True):
    """Infrastructure created for a cluster, in its current state."""

    id: str  # of the infrastructure
    name: str
    endpoint: ClusterEndpoint | None = None  # where the API is reached, once it answers; never changes afterwards
    network: Mapping[str, str] = {}  # what machines of the same driver have to know: `Order.network`
    tags: Mapping[str, str] = {}


class ClusterDriver(ABC, Generic[O]):
    """Driver of the infrastructure that is created before the first machine of a cluster and removed after the last.

    It runs in a Job like a Driver, by the same rules: it may be killed anywhere and restarted, and never creates a
    thing twice.
    """

    options_type: ClassVar[type[Any]]
    credential_fields: ClassVar[tuple[str, ...]] = ()
    local: ClassVar[bool] = False
    needs: ClassVar[Needs] = Needs()
    own_loopback: ClassVar[bool] = False

    def __init__(self, options: O, context: Context) -> None:
        self.options = options
        self.context = context

    async def check(self, order: ClusterOrder) -> None:
        """Raises BadOptions, before anything is made."""

    @abstractmethod
    async def ensure(self, order: ClusterOrder) -> ClusterInfrastructure:
        """Create or find the infrastructure and update it to the order's backends. Raises DriverError."""

    @abstractmethod
    async def remove(self, order: ClusterOrder) -> None:
        """Remove everything that `ensure` made, complete or partial, before returning. Raises DriverError."""

    @abstractmethod
    async def owned(self, owner: str) -> Sequence[ClusterInfrastructure]:
        """Return all infrastructure that carries the tag of this management plane, known to it or not."""


# ---- for one machine -------------------------------------------------------------------------------------------------


class Driver(ABC, Generic[O]):
    name: ClassVar[str]  # "nspawn": lower case; its kinds are NspawnConfig, NspawnMachine, NspawnMachineTemplate
    doc: ClassVar[str]  # one paragraph: what it makes, what it needs
    options_type: ClassVar[type[Any]]
    credential_fields: ClassVar[tuple[str, ...]] = ()  # options (JSON names) that a cloud credential may bring instead
    address_options: ClassVar[tuple[str, ...]] = ()  # options (JSON names) that say where to connect: see `addresses`
    user_data_format: ClassVar[Literal["cloud-config", "script"]] = "cloud-config"  # what `create` is given
    local: ClassVar[bool] = False  # its servers live on the machine that runs the Job: only our job runner can
    on_manager: ClassVar[bool] = False  # its servers run code on the manager's machine: see `restriction`
    needs: ClassVar[Needs] = Needs()  # what its Jobs may do on the machine of our job runner
    own_loopback: ClassVar[bool] = False  # 127.0.0.1 is another place on its servers: a manager there is out of reach
    replaceable: ClassVar[bool] = True  # it can create another server in place of a broken one
    cluster: ClassVar[type[ClusterDriver[Any]] | None] = None  # what it can make for a cluster as a whole, if anything

    def __init__(self, options: O, context: Context) -> None:
        self.options = options
        self.context = context

    @classmethod
    def shares_loopback(cls, options: Mapping[str, Any]) -> bool:
        """Return whether servers with these options (JSON names) are on the manager's machine, as far as is known: only
        they reach a manager on a loopback address."""
        return not cls.own_loopback

    @property
    def takes_user_data(self) -> bool:
        """Return whether `create` passes the bootstrap data to the server. Otherwise the Job runs the script over SSH,
        with the SSH access in the returned Server."""
        return True

    async def check(self, order: Order) -> None:
        """Raises BadOptions, before anything is made."""

    @abstractmethod
    async def create(self, order: Order, user_data: bytes) -> Server:
        """Create or find the server; it may still be starting when this returns. Raises DriverError."""

    @abstractmethod
    async def find(self, order: Order) -> Server | None:
        """Return the server of an order, complete or partial; None if there is none."""

    @abstractmethod
    async def remove(self, order: Order) -> None:
        """Remove everything that `create` made, complete or partial, before returning. Raises DriverError."""

    @abstractmethod
    async def owned(self, owner: str) -> Sequence[Server]:
        """Return every server that carries the tag of this management plane, known to it or not."""
