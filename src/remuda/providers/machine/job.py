"""The program in a machine's Job: `remuda machine-job`. It carries out one order with one driver. An order in the file
`cluster.json` is for a cluster as a whole.

The Job may be killed at any point and is then restarted. So it writes its intent to the machine-state Secret before it
calls the infrastructure, and the result right after; `create` of a driver finds what an earlier attempt has created.

Exit codes: 0 success; 1 failure that a retry may fix; 3 failure until options or credentials change. The final message
goes to the termination log, and from there into the machine's conditions. Secrets are redacted everywhere.
"""

from __future__ import annotations

import asyncio
import base64
import os
import resource
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec

from remuda.jobs import DIRECTORY_VARIABLE, ROOT_VARIABLE, TERMINATION_LOG
from remuda.jobs.in_process import Program
from remuda.jobs.launcher import LaunchSpec
from remuda.kube.client import Client
from remuda.kube.core import SECRETS
from remuda.kube.errors import StatusError
from remuda.providers.machine import addresses
from remuda.providers.machine.addresses import ConnectionGuard
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers.spi import BadOptions, ClusterDriver, ClusterOrder, Driver, DriverError, Order
from remuda.providers.shared.jobs import kept_log, log_redaction
from remuda.providers.shared.jobs.cluster_job import ClusterJob
from remuda.providers.shared.jobs.execution import Job, Say
from remuda.providers.shared.jobs.kept_log import LogTail
from remuda.providers.shared.jobs.log_redaction import Scrubber
from remuda.runtime.steps import step

SAVE_LOG = step("machinejob.save-log", "writes the end of a Job's log to the state Secret")

OK, FAILED, HOPELESS = 0, 1, 3

ORDER_PATH = "/run/secrets/machine"
CREDENTIALS_PATH = "/run/secrets/credentials"
ORDER_FILE, CLUSTER_ORDER_FILE, SCRIPT_FILE = "order.json", "cluster.json", "value"

_LONGEST_WORDS = 4000  # bytes; a kubelet keeps 4096 of a termination message


def driver_of(order: Order) -> type[Driver[Any]]:
    """Raises BadOptions."""
    if order.program:
        from remuda.providers.machine.rancher_machine.driver import RancherMachine

        return RancherMachine
    try:
        return drivers.find(order.driver)
    except drivers.NoSuchDriver as error:
        raise BadOptions(str(error)) from None


async def run(
    files: Mapping[str, bytes], credentials: Mapping[str, str], client: Client, directory: Path, say: Say
) -> tuple[int, str]:
    """Carry out the order in the files; return exit code and final message. `say` gets all output, redacted."""
    scrubber, kept = Scrubber(credentials.values()), LogTail()

    def tell(text: str) -> None:
        clean = scrubber(text)
        kept.add(clean)
        say(clean)

    code, words = await _carry_out(files, credentials, client, directory, tell, scrubber)
    if CLUSTER_ORDER_FILE not in files:
        kept.add(words)
        await _keep_log(files, client, kept)
    return code, words


async def _keep_log(files: Mapping[str, bytes], client: Client, kept: LogTail) -> None:
    """Write the log to the state Secret. The order is carried out: an error here changes nothing about that."""
    try:
        order = _order(files)
        key = kept_log.REMOVE_LOG if order.action == "remove" else kept_log.CREATE_LOG
        encoded = base64.b64encode(kept.packed()).decode()
        async with SAVE_LOG:
            await client.patch(SECRETS, *order.state_key, {"data": {key: encoded}})
    except (DriverError, StatusError, OSError):
        return


async def _carry_out(
    files: Mapping[str, bytes], credentials: Mapping[str, str], client: Client, directory: Path, tell: Say,
    scrubber: Scrubber,
) -> tuple[int, str]:  # fmt: skip
    try:
        if CLUSTER_ORDER_FILE in files:
            await _for_cluster(files, credentials, client, directory, tell, scrubber)
        else:
            await _for_machine(files, credentials, client, directory, tell, scrubber)
    except BadOptions as error:
        return HOPELESS, scrubber(str(error))
    except (DriverError, StatusError, OSError) as error:
        return FAILED, scrubber(str(error) or type(error).__name__)
    except Exception as error:
        tell("".join(traceback.format_exception(error)))
        return FAILED, scrubber(f"{type(error).__name__}: {error}")
    return OK, ""


async def _for_machine(
    files: Mapping[str, bytes], credentials: Mapping[str, str], client: Client, directory: Path, tell: Say,
    scrubber: Scrubber,
) -> None:  # fmt: skip
    order = _order(files)
    driver = driver_of(order)
    if order.program and not order.local_addresses:
        await asyncio.to_thread(addresses.check_program, order.driver, order.options)
    for secret in log_redaction.secret_options(order.driver, order.options, driver.options_type):
        scrubber.add(secret)
    # The output of the script reaches the log too, and may show the tokens that the script contains.
    for secret in log_redaction.tokens(_script(files)):
        scrubber.add(secret)
    await Job(order, driver, credentials, client, directory, tell, scrubber).run(_script(files))


async def _for_cluster(
    files: Mapping[str, bytes], credentials: Mapping[str, str], client: Client, directory: Path, tell: Say,
    scrubber: Scrubber,
) -> None:  # fmt: skip
    order = _cluster_order(files)
    driver = cluster_driver_of(order.driver)
    for secret in log_redaction.secret_options(order.driver, order.options, driver.options_type):
        scrubber.add(secret)
    await ClusterJob(order, driver, credentials, client, directory, tell, scrubber).run()


def cluster_driver_of(name: str) -> type[ClusterDriver[Any]]:
    """Raises BadOptions."""
    try:
        return drivers.find_cluster(name)
    except drivers.NoSuchDriver as error:
        raise BadOptions(str(error)) from None


def _cluster_order(files: Mapping[str, bytes]) -> ClusterOrder:
    try:
        return msgspec.json.decode(files[CLUSTER_ORDER_FILE], type=ClusterOrder)
    except msgspec.MsgspecError as error:
        raise DriverError(f"cannot read the order of this Job: {error}") from None


def _order(files: Mapping[str, bytes]) -> Order:
    try:
        return msgspec.json.decode(files.get(ORDER_FILE, b""), type=Order)
    except msgspec.MsgspecError as error:
        raise DriverError(f"cannot read the order of this Job: {error}") from None


def _script(files: Mapping[str, bytes]) -> bytes:
    return files.get(SCRIPT_FILE, b"")


def in_process(client: Client, directory: Path) -> Program:
    """Run orders as tasks of this event loop, for `jobs.in_process`: simulations create thousands of machines."""

    async def program(work: LaunchSpec, say: Say) -> int:
        given = {path: file.content for path, file in work.materials.files.items()}
        credentials = {name: value.decode() for name, value in _below(given, CREDENTIALS_PATH).items()}
        code, words = await run(_below(given, ORDER_PATH), credentials, client, directory, say)
        if words:
            say(words)
        return code

    return program


def _below(files: Mapping[str, bytes], directory: str) -> dict[str, bytes]:
    return {PurePosixPath(path).name: content for path, content in files.items() if path.startswith(f"{directory}/")}


# ---- as a program ---------------------------------------------------------------------------------------------------


def main() -> NoReturn:
    root = os.environ.get(ROOT_VARIABLE, "")
    code, words = asyncio.run(_main(root))
    if words:
        print(words, flush=True)
        _last_words(root + TERMINATION_LOG, words)
    sys.exit(code)


async def _main(root: str) -> tuple[int, str]:
    from remuda.kube import kubeconfig
    from remuda.kube.http import HttpClient

    directory = Path(os.environ.get(DIRECTORY_VARIABLE) or Path.cwd() / "hosts")
    files = _read(Path(root + ORDER_PATH))
    credentials = {
        name: value.decode("utf-8", "replace") for name, value in _read(Path(root + CREDENTIALS_PATH)).items()
    }
    _set_hosts_free(files)
    try:
        access = kubeconfig.load()
        client = HttpClient(access)
    except kubeconfig.KubeconfigError as error:
        return FAILED, str(error)
    # The API server may be at an address that drivers are denied: the guard lets the Job's own client through.
    guard = _guard(files, (access.server, access.proxy_url))
    try:
        code, words = await run(files, credentials, client, directory, _print)
    finally:
        await client.close()
    if code and guard is not None and guard.denied:
        return HOPELESS, f"{words}; {guard.denied}" if words else guard.denied
    return code, words


def _guard(files: Mapping[str, bytes], servers: Sequence[str]) -> ConnectionGuard | None:
    """Install the guard of connections, unless the driver's servers are on this machine, or an administrator allows all
    addresses. `servers`: URLs at which the API server is reached."""
    try:
        order: Order | ClusterOrder = _cluster_order(files) if CLUSTER_ORDER_FILE in files else _order(files)
        if isinstance(order, ClusterOrder):
            free = cluster_driver_of(order.driver).local
        else:  # rancher-machine's plugins listen on loopback, and the hook does not see other programs' connections
            free = driver_of(order).local or order.local_addresses or bool(order.program)
    except DriverError:
        return None  # carrying out the order reports it
    if free:
        return None
    guard = ConnectionGuard(order.driver, {place for url in servers for place in _places(url)})
    guard.install()
    return guard


def _places(url: str) -> list[tuple[str, int]]:
    parts = urlsplit(url)
    if not parts.hostname:
        return []
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(str(address[0]), port) for *_, address in found]


def _set_hosts_free(files: Mapping[str, bytes]) -> None:
    """Lift the Job's resource limits for local drivers: the hosts that they start outlive the Job."""
    try:
        if CLUSTER_ORDER_FILE in files:
            local = cluster_driver_of(_cluster_order(files).driver).local
        else:
            local = driver_of(_order(files)).local
    except DriverError:
        return  # carrying out the order reports it
    if not local:
        return
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def _print(text: str) -> None:
    print(text, flush=True)


def _read(directory: Path) -> dict[str, bytes]:
    """Return the files of a Secret's volume. In a container they are symlinks next to a few of the kubelet's own."""
    try:
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    except FileNotFoundError:
        return {}


def _last_words(path: str, words: str) -> None:
    try:
        Path(path).write_bytes(words.encode()[-_LONGEST_WORDS:])
    except OSError:
        pass  # the log has them too
