"""Options of a host, and checks for values that can never work."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NamedTuple

from remuda.kube.objects import Field
from remuda.providers.shared.drivers.spi import BadOptions, Options

DEFAULT_BRIDGE = "remuda0"
_LONGEST_INTERFACE = 15
_SMALLEST_SUBNET = 30  # room for the bridge and one host
_SYSTEM_CALL = re.compile(r"@?[a-z][a-z0-9_-]*")
_INTERFACE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


class NspawnOptions(Options):
    """A host in systemd-nspawn."""

    image: Annotated[
        str,
        Field(
            "The root file system of hosts: a directory or a tarball. If empty, a copy-on-write view of the manager's "
            "machine, without its services and private folders."
        ),
    ] = ""
    bootstrap: Annotated[
        Literal["cloud-init", "ssh"],
        Field(
            "How the bootstrap script reaches the host: as user data for cloud-init, or over SSH.",
            default="cloud-init",
        ),
    ] = "cloud-init"
    bridge: Annotated[
        str,
        Field(
            "The bridge that hosts are connected to. A missing bridge is created, and deleted with its last host. "
            "With the default, hosts of a cluster that has its own bridge use that one.",
            default=DEFAULT_BRIDGE,
            max_length=_LONGEST_INTERFACE,
        ),
    ] = DEFAULT_BRIDGE
    subnet: Annotated[
        str,
        Field("The subnet of the hosts' addresses; a new bridge gets the first address.", default="198.18.0.0/24"),
    ] = "198.18.0.0/24"
    memory: Annotated[int, Field("Memory limit of a host, in MiB. 0: no limit.", minimum=0)] = 0
    cpus: Annotated[int, Field("CPU limit of a host. 0: no limit.", minimum=0)] = 0
    ssh_user: Annotated[str, Field("SSH user; must exist in the image.", default="root", max_length=32)] = "root"
    binds: Annotated[
        Sequence[str],
        Field(
            "Folders of the manager's machine to mount into hosts: /here, /here:/there, or /here:/there:ro.",
            list_type="atomic",
        ),
    ] = ()
    dns: Annotated[Sequence[str], Field("Addresses of name servers. Empty: none.", list_type="atomic")] = ()
    system_calls: Annotated[
        Sequence[str],
        Field(
            "System calls or @groups that hosts may use in addition to those that systemd-nspawn allows. Hosts that "
            "run containers need add_key, keyctl and bpf.",
            list_type="atomic",
        ),
    ] = ()


def judge_subnet(text: str, smallest: int = _SMALLEST_SUBNET) -> ipaddress.IPv4Network:
    """Raises BadOptions."""
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise BadOptions(f"subnet: {text!r} is not an IPv4 network: {error}") from None
    if found.prefixlen > smallest:
        raise BadOptions(f"subnet: {text} is too small for a bridge and a host; use a /{smallest} or larger")
    return found


class Net(NamedTuple):
    """Bridge and subnet for a host."""

    bridge: str
    subnet: ipaddress.IPv4Network


def net(options: NspawnOptions, of_cluster: Mapping[str, str]) -> Net:
    """Return the cluster's network if it has one and the options name no other bridge, else that of the options.

    Raises BadOptions.
    """
    if of_cluster and options.bridge == DEFAULT_BRIDGE:
        return Net(of_cluster["bridge"], judge_subnet(of_cluster["subnet"]))
    return Net(options.bridge, judge_subnet(options.subnet))


def bind_flags(options: NspawnOptions) -> list[str]:
    """As systemd-nspawn takes them. Raises BadOptions."""
    return [_bind_flag(bind) for bind in options.binds]


def _bind_flag(bind: str) -> str:
    here, _, rest = bind.partition(":")
    there, _, mode = rest.partition(":")
    there = there or here
    if mode not in ("", "ro") or not (here.startswith("/") and there.startswith("/")):
        raise BadOptions(f"binds: {bind!r} is not of the form /here, /here:/there or /here:/there:ro")
    if not Path(here).exists():
        raise BadOptions(f"binds: {here} does not exist on this machine")
    return f"--bind{'-ro' if mode else ''}={here}:{there}"


def system_call_flags(options: NspawnOptions) -> list[str]:
    """As systemd-nspawn takes them. Raises BadOptions."""
    for name in options.system_calls:
        if not _SYSTEM_CALL.fullmatch(name):
            raise BadOptions(f"systemCalls: {name!r} is neither a system call nor a @group")
    return [f"--system-call-filter={' '.join(options.system_calls)}"] if options.system_calls else []


def judge(options: NspawnOptions) -> None:
    """Check the options as far as possible with the file system alone. Raise BadOptions."""
    judge_subnet(options.subnet)
    bind_flags(options)
    system_call_flags(options)
    if not _INTERFACE.match(options.bridge) or len(options.bridge) > _LONGEST_INTERFACE:
        raise BadOptions(f"bridge: {options.bridge!r} is not a valid interface name")
    for server in options.dns:
        try:
            ipaddress.ip_address(server)
        except ValueError:
            raise BadOptions(f"dns: {server!r} is not an address") from None
    if options.image:
        _judge_image(options.image)


def _judge_image(image: str) -> None:
    path = Path(image)
    if not path.is_absolute() or ".." in PurePosixPath(image).parts:
        raise BadOptions(f"image: {image!r} is not an absolute path")
    if any(sign in image for sign in ",:\\"):
        raise BadOptions(
            f"image: {image!r} contains a comma, a colon or a backslash, which overlay mounts do not support"
        )
    if not path.exists():
        raise BadOptions(f"image: {image} does not exist")
