"""Access of users to a server: found by the name of its Machine, using the content of its machine-state Secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from remuda.capi import inventory
from remuda.capi.types import MACHINE
from remuda.jobs.types import JOB
from remuda.kube.client import Client, list_all
from remuda.kube.core import JOBS, SECRET, SECRETS
from remuda.kube.errors import Forbidden, NotFound
from remuda.kube.objects import Key
from remuda.providers import ProviderError
from remuda.providers.shared import names
from remuda.providers.shared.drivers.spi import DIRECTORY
from remuda.providers.shared.jobs import login, manifests, state
from remuda.providers.shared.jobs.state import KNOWN_HOSTS, PRIVATE_KEY, State


class NoAccess(ProviderError):
    """Error with a message for users."""


class LocalHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is a directory of the manager's machine, and processes there."""

    machine: Key  # the <Driver>Machine
    directory: Path


class MachineLogin(msgspec.Struct, frozen=True, kw_only=True):
    machine: Key  # the <Driver>Machine
    state: State
    login: login.Login
    known_hosts: str  # as OpenSSH has it; empty: no host key is pinned


async def find_machine(client: Client, name: str, namespace: str = "") -> Key:
    """Return the <Driver>Machine of a Machine, or the <Driver>Machine of that name. Raises NoAccess."""
    found = await _of_machines(client, name, namespace) or await _of_states(client, name, namespace)
    if not found:
        removed = {machine for machine, _ in await removals(client)}
        found = {one for one in removed if one.name == name and namespace in ("", one.namespace)}
    found = found or await _of_kept_logs(client, name, namespace)
    if not found:
        where = f" in namespace {namespace}" if namespace else ""
        raise NoAccess(f"machine {name} not found{where}; to list machines: remuda get machines")
    if len(found) > 1:
        places = ", ".join(sorted(key.namespace for key in found))
        raise NoAccess(f"several machines are called {name}, in namespaces {places}: choose one with -n")
    return next(iter(found))


async def _of_machines(client: Client, name: str, namespace: str) -> set[Key]:
    try:
        listing = await list_all(client, MACHINE.target, namespace, field_selector=f"metadata.name={name}")
    except NotFound:
        return set()
    found = set()
    for machine in map(MACHINE.decode, listing.items):
        reference = machine.spec.infrastructure_ref
        if reference is None or reference.api_group != names.MACHINE_GROUP:
            kind = reference.kind if reference is not None else "nothing"
            raise NoAccess(
                f"cannot connect to Machine {machine.key}: its server is a {kind}, and Remuda has no SSH key for it"
            )
        found.add(Key(machine.metadata.namespace, reference.name))
    return found


async def _of_states(client: Client, name: str, namespace: str) -> set[Key]:
    selector = f"metadata.name={names.state_secret(name)},type={names.STATE_TYPE}"
    listing = await list_all(client, SECRETS, namespace, field_selector=selector)
    return {Key(SECRET.decode(value).metadata.namespace, name) for value in listing.items}


async def _of_kept_logs(client: Client, name: str, namespace: str) -> set[Key]:
    """Return machines that are deleted, and whose logs are kept."""
    selector = f"metadata.name={names.machine_log(name)},type={names.LOG_TYPE}"
    listing = await list_all(client, SECRETS, namespace, field_selector=selector)
    return {Key(SECRET.decode(value).metadata.namespace, name) for value in listing.items}


async def removals(client: Client) -> list[tuple[Key, Key]]:
    """Return the <Driver>Machines of namespaces that are being deleted, each with the Job that removes its server.
    Jobs run in the manager's namespace; to users who may not read there they do not exist."""
    selector = f"{manifests.REMOVAL_OF},{manifests.MACHINE_GROUP}={names.MACHINE_GROUP}"
    try:
        listing = await list_all(client, JOBS, inventory.NAMESPACE, label_selector=selector)
    except (Forbidden, NotFound):
        return []
    jobs = [JOB.decode(value) for value in listing.items]
    subjects = [(job.metadata.annotations.get(manifests.REMOVAL_OF, "").partition("/"), job.key) for job in jobs]
    return [(Key(namespace, name), job) for (namespace, _, name), job in subjects if name]


async def machine_login(client: Client, machine: Key) -> MachineLogin | LocalHost:
    """Return the address, login and host keys of a machine's server, or its directory. Raises NoAccess."""
    secret = names.state_secret(machine.name)
    try:
        data = SECRET.decode(await client.get(SECRETS, machine.namespace, secret)).data
    except NotFound:
        raise NoAccess(f"the server of {machine} has not been created yet: Secret {secret} does not exist") from None
    known = state.read(data)
    if directory := str(known.record.get(DIRECTORY) or ""):
        return LocalHost(machine=machine, directory=Path(directory))
    if not known.addresses:
        raise NoAccess(
            f"the server of {machine} has no address yet; see remuda machine logs {machine.name} -n {machine.namespace}"
        )
    if not known.ssh_user or PRIVATE_KEY not in data:
        raise NoAccess(
            f"servers of the driver {known.driver} have no SSH access. If they run on the manager's machine, look "
            f"there in DATA_DIR/hosts/{known.driver}/{known.name or machine.name}"
        )
    pinned = data.get(KNOWN_HOSTS, b"").decode("utf-8", "replace")
    access = login.Login(
        addresses=login.reachable(known.addresses),
        port=known.ssh_port or 22,
        user=known.ssh_user,
        private_key=data[PRIVATE_KEY].decode("utf-8", "replace"),
        host_keys=login.host_keys(pinned),
    )
    return MachineLogin(machine=machine, state=known, login=access, known_hosts=pinned)


async def pin(client: Client, machine: Key, known_hosts: str) -> None:
    """Pin the first host key seen, unless another client has pinned one in the meantime."""
    secret = names.state_secret(machine.name)
    value: dict[str, Any] = msgspec.json.decode(await client.get(SECRETS, machine.namespace, secret))
    if (value.get("data") or {}).get(KNOWN_HOSTS):
        return
    patch = {
        "metadata": {"resourceVersion": value["metadata"]["resourceVersion"]},
        "stringData": {KNOWN_HOSTS: known_hosts},
    }
    await client.patch(SECRETS, machine.namespace, secret, patch)
