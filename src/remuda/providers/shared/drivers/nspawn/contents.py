"""Files written for a host before it boots: its name, address, keys, the units it starts, and its user data.

This module generates the SSH host key, so it is known before the first connection. cloud-init looks for its data only
in the folder where it is written, so it neither waits for a network nor queries a cloud that does not exist.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import asyncssh
import msgspec

from remuda.providers.shared.drivers.nspawn.bridges import NetworkAddress
from remuda.providers.shared.drivers.nspawn.layers import Layer
from remuda.providers.shared.drivers.spi import BadOptions

_UNITS = "etc/systemd/system"
_HOST_KEY = "etc/ssh/ssh_host_ed25519_key"

# Parts of the machine itself that a host must not have, if the machine is the image.
_EMPTIED = (
    _UNITS,
    "etc/systemd/network",
    *(f"etc/rc{level}.d" for level in "S0123456"),
    "etc/cron.d",
    "home",
    "root",
    "srv",
    "tmp",
    "var/tmp",
    "var/lib/cloud",
    "var/lib/systemd",
)
_CLEARED = ("var/log", "var/spool")  # programs expect their folders there
_HIDDEN = (
    "etc/fstab",
    "etc/crypttab",
    "etc/rc.local",
    "etc/rancher",  # an agent of the machine's own, and whose it is
    "etc/remuda",
    "var/lib/rancher",
    "var/lib/remuda",
)
_NEEDED_FOLDERS = ("/etc", "/usr", "/var")

_CLOUD_INIT = """\
# Data comes from one folder. What the host is called, its keys and its network are settled already.
datasource_list: [NoCloud]
network: {config: disabled}
disable_root: false
ssh_deletekeys: false
ssh_genkeytypes: []
ssh: {emit_keys_to_console: false}
no_ssh_fingerprints: true
users: []
locale: false
manage_etc_hosts: false
apt: {preserve_sources_list: true}
"""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    hostname: str
    place: NetworkAddress
    ssh_user: str
    client_public_key: str
    host_private_key: str
    dns: Sequence[str]
    user_data: bytes | None  # None: cloud-init stays out of it
    hidden: Sequence[str]  # folders of this machine that hosts have no business in
    whole_machine: bool  # the image is the machine itself


def write(layer: Layer, contents: Contents) -> None:
    """Write all files into an empty layer. Raises BadOptions if the image cannot boot as a host."""
    _refuse(layer, contents)
    if contents.whole_machine:
        for path in _EMPTIED:
            if layer.has(path):
                layer.empty(path)
        for path in _CLEARED:
            layer.empty(path, keep_folders=True)
        for path in (*_HIDDEN, *contents.hidden):
            layer.hide(path)
    _identity(layer, contents)
    _network(layer, contents)
    _doors(layer, contents)
    _cloud_init(layer, contents)


def _refuse(layer: Layer, contents: Contents) -> None:
    for path, package in (
        ("usr/lib/systemd/systemd", "systemd"),
        ("usr/lib/systemd/systemd-networkd", "systemd-networkd"),
        ("usr/sbin/sshd", "openssh-server"),
    ):
        if not layer.has(path) and not layer.has(path.removeprefix("usr/")):
            raise BadOptions(f"image: {path} is missing; install {package} in the image")
    if contents.user_data is not None and not layer.has("usr/bin/cloud-init"):
        raise BadOptions("bootstrap: the image has no cloud-init; install it in the image, or set bootstrap: ssh")


def _identity(layer: Layer, contents: Contents) -> None:
    # A machine-id that is already there: an empty one would make systemd enable whatever the image has.
    layer.write("etc/machine-id", hashlib.sha256(contents.uid.encode()).hexdigest()[:32] + "\n", mode=0o444)
    layer.write("etc/hostname", contents.hostname + "\n")
    layer.write(
        "etc/hosts",
        f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{contents.place.address} {contents.hostname}\n",
    )
    layer.link(f"{_UNITS}/default.target", "/lib/systemd/system/multi-user.target")
    for unit in ("console-getty.service", "getty.target", "systemd-resolved.service"):
        layer.link(f"{_UNITS}/{unit}", "/dev/null")


def _network(layer: Layer, contents: Contents) -> None:
    address, gateway, prefix = contents.place
    layer.write(
        "etc/systemd/network/10-host0.network",
        "[Match]\nName=host0\n\n"
        "[Network]\n"
        f"Address={address}/{prefix}\nGateway={gateway}\n"
        "LinkLocalAddressing=no\nIPv6AcceptRA=no\nLLDP=no\nConfigureWithoutCarrier=yes\n",
    )
    _enable(layer, "systemd-networkd.service", "multi-user.target")
    _enable(layer, "systemd-networkd-wait-online.service", "network-online.target")
    # With no name server at all, asking for a name fails at once rather than after a time-out.
    layer.write("etc/resolv.conf", "".join(f"nameserver {server}\n" for server in contents.dns) or "# none\n")


def _doors(layer: Layer, contents: Contents) -> None:
    uid, gid, home = _account(layer, contents.ssh_user)
    layer.folder(f"{home}/.ssh", mode=0o700, owner=(uid, gid))
    layer.write(f"{home}/.ssh/authorized_keys", contents.client_public_key + "\n", mode=0o600, owner=(uid, gid))
    key = asyncssh.import_private_key(contents.host_private_key)
    layer.write(_HOST_KEY, contents.host_private_key, mode=0o600)
    layer.write(f"{_HOST_KEY}.pub", key.export_public_key())
    for kind in ("rsa", "ecdsa", "dsa"):  # keys of the image, which everyone with the image knows
        layer.hide(f"etc/ssh/ssh_host_{kind}_key")
        layer.hide(f"etc/ssh/ssh_host_{kind}_key.pub")
    service = "ssh.service" if _has_unit(layer, "ssh.service") else "sshd.service"
    _enable(layer, service, "multi-user.target")


def _account(layer: Layer, user: str) -> tuple[int, int, str]:
    for line in layer.read("etc/passwd").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[0] == user:
            return int(fields[2]), int(fields[3]), fields[5]
    raise BadOptions(f"sshUser: there is no user {user!r} in the image")


def _cloud_init(layer: Layer, contents: Contents) -> None:
    if contents.user_data is None:
        if layer.has("usr/bin/cloud-init"):
            layer.write("etc/cloud/cloud-init.disabled", "")
        return
    for stage in ("cloud-init-local", "cloud-init", "cloud-config", "cloud-final"):
        _enable(layer, f"{stage}.service", "cloud-init.target")
    layer.write("etc/cloud/cloud.cfg.d/99-host.cfg", _CLOUD_INIT)
    layer.write("etc/cloud/ds-identify.cfg", "policy: enabled\n")
    about = {"instance-id": contents.uid, "local-hostname": contents.hostname}
    layer.write("var/lib/cloud/seed/nocloud/meta-data", json.dumps(about) + "\n")
    layer.write("var/lib/cloud/seed/nocloud/user-data", contents.user_data, mode=0o600)


def _has_unit(layer: Layer, unit: str) -> bool:
    return any(layer.has(f"{folder}/{unit}") for folder in ("usr/lib/systemd/system", "lib/systemd/system"))


def _enable(layer: Layer, unit: str, target: str) -> None:
    layer.link(f"{_UNITS}/{target}.wants/{unit}", f"/lib/systemd/system/{unit}")


def lacking(folders: Sequence[str] = _NEEDED_FOLDERS) -> list[str]:
    """Return folders of this machine on separate file systems, which an overlay of / would not contain."""
    return [folder for folder in folders if Path(folder).is_mount()]
