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
            "The root file system hosts start from: a directory, or a tarball of one. Empty: a copy-on-write view of "
            "the machine they run on, without its own services and private folders."
        ),
    ] = ""
    bootstrap: Annotated[
        Literal["cloud-init", "ssh"],
        Field(
            "How the bootstrap script gets to the host: as user data that cloud-init runs, or over SSH.",
            default="cloud-init",
        ),
    ] = "cloud-init"
    bridge: Annotated[
        str,
        Field(
            "The bridge hosts are connected to. One that is missing is made, and goes with its last host. Left at its "
            "default, hosts of a cluster that has a bridge of its own are connected to that one.",
            default=DEFAULT_BRIDGE,
            max_length=_LONGEST_INTERFACE,
        ),
    ] = DEFAULT_BRIDGE
    subnet: Annotated[
        str,
        Field(
            "Where hosts get their addresses from; a bridge that is made gets the first one.", default="198.18.0.0/24"
        ),
    ] = "198.18.0.0/24"
    memory: Annotated[int, Field("The most memory a host may use, in MiB. 0: no limit.", minimum=0)] = 0
    cpus: Annotated[int, Field("The most processors a host may use. 0: no limit.", minimum=0)] = 0
    ssh_user: Annotated[
        str, Field("Who may log in with the host's key; must exist in the image.", default="root", max_length=32)
    ] = "root"
    binds: Annotated[
        Sequence[str],
        Field("Folders of this machine that hosts see: /here, /here:/there, or /here:/there:ro.", list_type="atomic"),
    ] = ()
    dns: Annotated[Sequence[str], Field("Addresses of name servers. Empty: none.", list_type="atomic")] = ()
    system_calls: Annotated[
        Sequence[str],
        Field(
            "System calls, or @groups of them, that hosts may make beside what systemd-nspawn allows. Hosts that run "
            "containers need add_key, keyctl and bpf.",
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
        raise BadOptions(f"subnet: {text} is too small for a bridge and a host; take a /{smallest} or a larger one")
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
            raise BadOptions(f"systemCalls: {name!r} is no system call, and no @group of them")
    return [f"--system-call-filter={' '.join(options.system_calls)}"] if options.system_calls else []


def judge(options: NspawnOptions) -> None:
    """Raises BadOptions for what can be seen without looking further than the file system."""
    judge_subnet(options.subnet)
    bind_flags(options)
    system_call_flags(options)
    if not _INTERFACE.match(options.bridge) or len(options.bridge) > _LONGEST_INTERFACE:
        raise BadOptions(f"bridge: {options.bridge!r} cannot be the name of an interface")
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
        raise BadOptions(f"image: {image!r} has a comma, a colon or a backslash in it, which an overlay cannot have")
    if not path.exists():
        raise BadOptions(f"image: there is no {image}")
