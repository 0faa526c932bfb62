"""Clusters on servers that the user owns: `--host` and `--ssh-key` of `remuda create cluster`.

The first hosts become servers of the control plane and the others workers. Each pool's Config names its own hosts, so a
worker never claims the host of a server. The private key goes from its file into a Secret: it is never an argument of a
program, and --dry-run does not print it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.text_wrap import counted

if TYPE_CHECKING:
    from remuda.providers.shared.drivers.existing.remote import SshAddress

Json = dict[str, Any]

DRIVER = "existing"
KEY = "privateKey"
_MOST_KEY_BYTES = 64 * 1024


def key_secret_name(cluster: str) -> str:
    return f"{cluster}-ssh-key"


def key_secret(namespace: str, cluster: str, key: str) -> Json:
    """Return the Secret with the private key of a cluster's hosts."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": key_secret_name(cluster), "namespace": namespace},
        "type": "Opaque",
        "data": {KEY: base64.b64encode(key.encode()).decode()},
    }


def read_key(path: Path) -> str:
    """Return a private key that hosts can be logged in to with. Raises ClickException, never with parts of the key."""
    from remuda.providers.shared.drivers.existing.remote import private_key
    from remuda.providers.shared.drivers.spi import BadOptions

    try:
        with path.expanduser().open("rb") as file:
            text = file.read(_MOST_KEY_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise click.ClickException(f"cannot read --ssh-key {path}: {error.strerror}") from None
    if text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise click.ClickException(f"--ssh-key {path} is a public key: name the private key, the file without .pub")
    try:
        private_key(text)
    except BadOptions as error:
        if "passphrase" in str(error):
            raise click.ClickException(
                f"--ssh-key {path} has a passphrase, which the management plane does not know: use a key without one. "
                f"To create one: ssh-keygen -t ed25519 -N '' -f FILE, then ssh-copy-id -i FILE HOST for each host"
            ) from None
        raise click.ClickException(f"--ssh-key {path} is not a private key in OpenSSH or PEM format") from None
    return text


class Host:
    """Host of --host: [user@]address[:port]."""

    def __init__(self, text: str) -> None:
        """Raises UsageError."""
        from remuda.providers.shared.drivers.existing.remote import place
        from remuda.providers.shared.drivers.spi import BadOptions

        user, at, address = text.rpartition("@")
        if at and (not user or any(letter.isspace() or letter in ":/@" for letter in user)):
            raise click.UsageError(f"--host {text}: {user!r} is not a user name")
        try:
            self.place: SshAddress = place(address, 22, f"--host {text}")
        except BadOptions:
            raise click.UsageError(
                f"--host {text}: write ADDRESS, USER@ADDRESS, ADDRESS:PORT or [IPv6 ADDRESS]:PORT"
            ) from None
        self.user = user


def hosts(given: Sequence[str]) -> list[Host]:
    """Parse the values of --host, which may be lists. Raises UsageError."""
    texts = [part.strip() for text in given for part in text.split(",")]
    if any(not text for text in texts):
        raise click.UsageError("--host has an empty entry: write ADDRESS,ADDRESS without a comma at the end")
    found = [Host(text) for text in texts]
    places = [str(one.place) for one in found]
    if twice := sorted({one for one in places if places.count(one) > 1}):
        raise click.UsageError(f"--host names {', '.join(twice)} twice: a host can be only one machine of a cluster")
    return found


def counts(hosts: int, servers: int, workers: int | None) -> tuple[int, int]:
    """Return the numbers of servers and workers. Raises UsageError if there are too few hosts."""
    found = max(hosts - servers, 0) if workers is None else workers
    if servers + found > hosts:
        raise click.UsageError(
            f"{servers + found} machines ({counted(servers, 'server')}, {counted(found, 'worker')}) need as many "
            f"hosts, and --host names {hosts}: add hosts, or set --servers and --workers"
        )
    return servers, found


def pool_options(hosts: Sequence[Host], servers: int, workers: int) -> tuple[Json, Json]:
    """Return the options of the Configs of servers and of workers. Hosts beyond their number are spares of the last
    pool. Raises UsageError for users that differ within a pool."""
    of_servers = hosts[:servers] if workers else hosts
    return _options(of_servers, "servers"), _options(hosts[len(of_servers) :], "workers")


def _options(hosts: Sequence[Host], pool: str) -> Json:
    users = {one.user or "root" for one in hosts}
    if len(users) > 1:
        raise click.UsageError(
            f"--host: the {pool} have different users ({', '.join(sorted(users))}), but a pool has one: use the same "
            "user on all of its hosts"
        )
    found: Json = {"addresses": [str(one.place) for one in hosts]}
    return found | ({"sshUser": users.pop()} if users - {"root"} else {})
