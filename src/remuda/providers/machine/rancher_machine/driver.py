"""A server made by rancher-machine: its binary, unmodified, does what it does for Rancher.

It keeps what it knows of a machine in a store of files, which it writes to the machine-state Secret by itself and reads
back from there (`extractedConfig`). Paths in it are absolute, so the store of a machine is at the same place in every
Job. Options and credentials reach it through the environment under the names its flags report, so that none is seen in
the list of processes.

What it cannot do, nobody can do for it: an attempt killed between a cloud's answer and its own record leaves a server
that it does not know of; it cannot list a cloud; and it does not verify the host key when it runs the script over SSH.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from remuda.providers.machine.options import Flag, camel
from remuda.providers.machine.rancher_machine import flags as plugin
from remuda.providers.machine.rancher_machine.program import Program, Unobtainable, obtain
from remuda.providers.shared.drivers.spi import (
    Address,
    BadOptions,
    Context,
    Driver,
    DriverError,
    Needs,
    Order,
    Server,
    ServerState,
    SshAccess,
)

# Keys of `Order.program`.
URL, CHECKSUM, MACHINE, FILES = "url", "checksum", "machine", "files"

_BAD_OPTIONS = 3  # exit codes
_NOT_FOUND = 4
_LAST_LINES = 4
_STATES: Mapping[str, ServerState] = {
    "running": "running",
    "starting": "starting",
    "stopped": "stopped",
    "stopping": "stopped",
    "paused": "stopped",
    "saved": "stopped",
    "error": "failed",
    "timeout": "failed",
}
_USER_DATA = ("user-data", "userdata", "custom-data", "cloud-config")  # in the name of the flag that takes it
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_KUBERNETES = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_RECORD = "asked"  # in the record: a create was begun under this name


class _Stored(msgspec.Struct, frozen=True):
    """Fields that we use of the program's own record of a machine."""

    class Machine(msgspec.Struct, frozen=True):
        ip_address: str | None = msgspec.field(name="IPAddress", default="")
        private_ip_address: str | None = msgspec.field(name="PrivateIPAddress", default="")
        ipv6_address: str | None = msgspec.field(name="IPv6Address", default="")
        user: str | None = msgspec.field(name="SSHUser", default="")
        port: int | None = msgspec.field(name="SSHPort", default=0)
        key_path: str | None = msgspec.field(name="SSHKeyPath", default="")

    driver: Machine = msgspec.field(name="Driver", default_factory=Machine)


class RancherMachine(Driver[Any]):
    name: ClassVar[str] = "rancher-machine"
    doc: ClassVar[str] = "Any driver that rancher-machine has, or that comes as a plugin for it."
    options_type: ClassVar[type[Any]] = dict
    user_data_format: ClassVar[Any] = "script"
    needs: ClassVar[Needs] = Needs(host_files=True)  # its store and the programs of drivers are there

    def __init__(self, options: Mapping[str, Any], context: Context) -> None:
        super().__init__(options, context)
        self._program: Program | None = None
        self._flags: Sequence[Flag] = ()

    # the interface

    async def create(self, order: Order, user_data: bytes) -> Server:
        program, store = await self._ready(order)
        if self.context.record.value.get(_RECORD):
            self.context.say("removing what an earlier attempt of the same name left behind")
            await self._remove(order, program, store)
        # Before the program runs: without this record, `remove` assumes that no server was requested.
        await self.context.record.save({_RECORD: order.name})
        script = store / "install.sh"
        _write(script, user_data)
        arguments = ["create", "--driver", order.driver, "--custom-install-script", str(script)]
        if order.hostname and order.hostname != order.name:
            arguments += ["--hostname-override", order.hostname]
        environment, lists = self._options(order, store)
        try:
            code, words = await self._run(order, program, store, [*arguments, *lists, order.name], environment)
        finally:
            # The script contains a bootstrap token, which must not stay on disk.
            script.unlink(missing_ok=True)
        if code == _BAD_OPTIONS:
            raise BadOptions(words)
        if code:
            raise DriverError(words)
        return self._server(order, store, "running", bootstrapped=not self._by_user_data)

    async def find(self, order: Order) -> Server | None:
        program, store = await self._ready(order)
        if not self.context.record.value.get(_RECORD):
            return None
        environment, _ = self._options(order, store)
        lines: list[str] = []
        code, words = await self._run(order, program, store, ["status", order.name], environment, lines.append)
        if code == _NOT_FOUND or not self._config(order, store).exists():
            return None
        if code:
            raise DriverError(words)
        state = _STATES.get(lines[-1].strip().lower() if lines else "", "failed")
        return self._server(order, store, state)

    async def remove(self, order: Order) -> None:
        if not self.context.record.value.get(_RECORD):
            return
        program, store = await self._ready(order)
        await self._remove(order, program, store)
        await self.context.record.save({})
        await asyncio.to_thread(_clear, store)

    async def owned(self, owner: str) -> Sequence[Server]:
        raise DriverError("rancher-machine cannot list servers")

    # running it

    async def _ready(self, order: Order) -> tuple[Program, Path]:
        store = self.context.directory / "rancher-machine" / order.uid
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._program is None:
            said = order.program
            try:
                self._program = await obtain(
                    order.driver,
                    said.get(URL, ""),
                    said.get(CHECKSUM, ""),
                    machine=said.get(MACHINE, ""),
                    directory=self.context.directory / "drivers",
                )
                self._flags = await plugin.read(self._program)
            except (Unobtainable, plugin.NoFlags) as error:
                raise DriverError(str(error)) from None
        return self._program, store

    async def _remove(self, order: Order, program: Program, store: Path) -> None:
        """Remove the server. The program exits with 0 also for an unknown machine or a deleted server."""
        environment, _ = self._options(order, store)
        code, words = await self._run(order, program, store, ["rm", "-y", "--update-config", order.name], environment)
        if code:
            raise DriverError(words)

    async def _run(
        self,
        order: Order,
        program: Program,
        store: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        heard: Any = None,
    ) -> tuple[int, str]:
        """Run the program; return its exit code and its last lines. Everything it prints is reported as it arrives."""
        last: deque[str] = deque(maxlen=_LAST_LINES)
        process = await asyncio.create_subprocess_exec(
            str(program.machine),
            "--native-ssh",
            f"--storage-path={store}",
            f"--secret-namespace={order.state_key.namespace}",
            f"--secret-name={order.state_key.name}",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._surroundings(program, store), **environment},
            cwd=store,
        )
        assert process.stdout is not None
        try:
            async for line in _lines(process.stdout):
                last.append(line)
                (heard or self.context.say)(line)
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return code, "\n".join(last) or f"rancher-machine exited with code {code} and printed nothing"

    def _surroundings(self, program: Program, store: Path) -> dict[str, str]:
        """Return the environment of the program: only access to the API server and proxy settings."""
        folders = [str(program.machine.parent)] + ([str(program.plugin.parent)] if program.plugin else [])
        kept = {name: os.environ[name] for name in _KUBERNETES if name in os.environ}
        for name in _PROXIES:
            kept |= {form: os.environ[form] for form in (name, name.lower()) if form in os.environ}
        return kept | {"HOME": str(store), "PATH": os.pathsep.join([*folders, os.defpath])}

    # options

    def _options(self, order: Order, store: Path) -> tuple[dict[str, str], list[str]]:
        """Return the options as environment variables, and as arguments where only arguments work."""
        files = _files(order)
        given = {**order.options, **self.context.credentials}
        known = {camel(flag.name.partition("-")[2]): flag for flag in self._flags}
        environment: dict[str, str] = {}
        arguments: list[str] = []
        for name, value in sorted(given.items()):
            flag = known.get(files.get(name, name))
            if value in (None, "", False, [], {}) or isinstance(value, Mapping):
                continue
            if flag is None:
                raise BadOptions(f"the driver {order.driver} has no option {name}")
            if name in files:
                value = _file(store, files[name], str(value))
            told = _told(flag, value)
            environment |= told[0]
            arguments += told[1]
        return environment, arguments

    @property
    def _by_user_data(self) -> bool:
        return any(part in flag.name for flag in self._flags for part in _USER_DATA)

    # its store

    def _config(self, order: Order, store: Path) -> Path:
        return store / "machines" / order.name / "config.json"

    def _server(self, order: Order, store: Path, state: ServerState, *, bootstrapped: bool = False) -> Server:
        try:
            found = msgspec.json.decode(self._config(order, store).read_bytes(), type=_Stored).driver
        except (OSError, msgspec.MsgspecError):
            raise DriverError("rancher-machine created the server, but left no readable record of it") from None
        return Server(
            id=order.name,
            name=order.name,
            state=state,
            provider_id=f"{order.driver}://{order.name}",
            addresses=_addresses(found),
            ssh=SshAccess(
                user=found.user or "root", port=found.port or 22, private_key=_private_key(store, order.name, found)
            ),
            tags=order.tags,
            bootstrapped=bootstrapped,
        )


def _files(order: Order) -> dict[str, str]:
    """Return the options that hold the content of a file, and the program's option for its path."""
    said = order.program.get(FILES, "")
    return dict(json.loads(said)) if said else {}


def _file(store: Path, name: str, content: str) -> str:
    """Write a file. Keys must end with a newline, otherwise OpenSSH cannot read them."""
    path = store / f"file-{name}"
    _write(path, (content if content.endswith("\n") else f"{content}\n").encode())
    return str(path)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _clear(store: Path) -> None:
    import shutil

    shutil.rmtree(store, ignore_errors=True)


def _told(flag: Flag, value: Any) -> tuple[dict[str, str], list[str]]:
    """Return an option's text. Lists become arguments: in the environment, commas would split their items."""
    variable = flag.env.split(",")[0].strip()
    if isinstance(value, list):
        return {}, [f"--{flag.name}={item}" for item in value]
    text = "true" if value is True else str(value)
    if variable:
        return {variable: text}, []
    return {}, [f"--{flag.name}"] if value is True else [f"--{flag.name}={text}"]


def _addresses(found: _Stored.Machine) -> list[Address]:
    listed: list[Address] = []
    if found.ip_address:
        listed.append(Address("ExternalIP", found.ip_address))
    if found.private_ip_address:
        listed.append(Address("InternalIP", found.private_ip_address))
    if found.ipv6_address:
        listed.append(Address("ExternalIP", found.ipv6_address))
    if listed and not found.private_ip_address:
        listed.append(Address("InternalIP", listed[0].address))
    return listed


def _private_key(store: Path, name: str, found: _Stored.Machine) -> str:
    for path in (found.key_path or "", str(store / "machines" / name / "id_rsa")):
        try:
            return Path(path).read_text() if path else ""
        except OSError:
            continue
    return ""


async def _lines(stream: asyncio.StreamReader) -> Any:
    """Yield the output line by line; cut a line that is too long into several."""
    pending = b""
    while chunk := await stream.read(4096):
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
        if len(pending) > 65536:
            yield pending.decode(errors="replace")
            pending = b""
    if pending:
        yield pending.decode(errors="replace")
