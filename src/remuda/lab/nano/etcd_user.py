"""User etcd, as which RKE2 runs etcd if `profile` requires it.

At each start RKE2 gives etcd's authorities to that user. If a program changes their owner afterwards, etcd cannot start
again. A stand-in runs as one user only, so it checks owner and mode instead of reading.
"""

from __future__ import annotations

import os
import pwd
import stat

import msgspec

from remuda.lab.nano.configuration import Configuration, FatalError
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.layout import NanoLayout, read_or_none

NAME = "etcd"
AUTHORITIES = ("server-ca.crt", "peer-ca.crt")


class Account(msgspec.Struct, frozen=True):
    user: int
    group: int


def required(configuration: Configuration) -> bool:
    return configuration.text("profile") in configuration.flavour.profiles


def find(host: NanoHost) -> Account:
    """Look up the user in the host's user database; a folder without one uses that of its machine. Raise FatalError."""
    listed = read_or_none(host.path("/etc/passwd")) if host.root else None
    if listed is not None:
        for line in listed.decode().splitlines():
            name, _, user, group = (*line.split(":"), "", "", "", "")[:4]
            if name == NAME and user.isdigit() and group.isdigit():
                return Account(int(user), int(group))
        raise _unknown()
    try:
        found = pwd.getpwnam(NAME)
    except KeyError:
        raise _unknown() from None
    return Account(found.pw_uid, found.pw_gid)


def give_authorities(layout: NanoLayout, account: Account) -> None:
    """Set owner and mode. Without root the owner stays unchanged."""
    for name in AUTHORITIES:
        path = layout.etcd_tls / name
        if os.geteuid() == 0:
            os.chown(path, account.user, account.group)
        path.chmod(0o600)


def check_authorities(layout: NanoLayout, account: Account) -> None:
    """Raise FatalError if etcd could not read them."""
    for name in AUTHORITIES:
        path = layout.etcd_tls / name
        found = path.stat()
        owned = found.st_uid == account.user or os.geteuid() != 0
        readable = stat.S_IRUSR if owned else stat.S_IRGRP if found.st_gid == account.group else stat.S_IROTH
        if not found.st_mode & readable:
            raise FatalError(f"open {path}: permission denied")


def _unknown() -> FatalError:
    return FatalError(f"missing required: user: unknown user {NAME}")
