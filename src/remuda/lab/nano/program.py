"""The command line: `nano server`, `nano agent`, and K3s' other commands as far as a stand-in has them. In RKE2 mode
the program is called `rke2`.

The version is read from the bundle that the program was installed with: a bundle has a file VERSION beside the package
`remuda`. So an upgrade works as it does for K3s: other files, a restart.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import remuda
from remuda.lab.nano.configuration import Configuration, FatalError, Role, read
from remuda.lab.nano.flavour import NANO, Flavour
from remuda.lab.nano.host import NanoHost, this_host

if TYPE_CHECKING:
    from remuda.lab.nano.server import NanoServer

Service = Callable[[asyncio.Event], Awaitable[None]]

COMPONENTS = "components"
HELP = """\
{program}: a stand-in for {original} that runs no Pods.

It has {original}'s flags, files, ports, tokens, certificates and member list of etcd, and a real Kubernetes API, so
that everything around a cluster can be tried without one. Nothing is ever started on its nodes: a Pod that is bound
to one is Running in name only. The data is with one server; losing that one is losing the cluster. It is not for
production.

usage: {program} COMMAND [FLAGS]

  server                  run a server (and a node on it)
  agent                   run a node
  token generate          print a new bootstrap token, for nobody yet
  token create            make a bootstrap token that agents may join with [--ttl 24h] [--description TEXT]
  token list | delete ID  show, or take back, bootstrap tokens
  certificate check       how long the certificates of this host are good
  certificate rotate      put this server's certificates aside; new ones are made at its next start
  scripts DIRECTORY       write the scripts that stop and remove nano there
  --version               print the version

Flags are those of {original}; config files are /etc/rancher/{program}/config.yaml and config.yaml.d/*.yaml.
"""
_SHAPE = re.compile(r"v\d+\.\d+\.\d+(-rc\d+)?\+[a-z0-9]+(-rc\d+)?")


def main(arguments: Sequence[str], flavour: Flavour = NANO) -> int:
    command, rest = (arguments[0], list(arguments[1:])) if arguments else ("help", [])
    if command in ("-v", "--version", "version"):
        print(f"{flavour.name} version {current_version(flavour)}")
        return 0
    if command in ("help", "-h", "--help") or {"-h", "--help"} & set(rest):
        print(HELP.format(program=flavour.name, original=flavour.original), end="")
        return 0
    try:
        return _commands(flavour).get(command, _unknown(flavour, command))(rest)
    except FatalError as refused:
        print(flavour.fatal.format(command=command, why=refused), file=sys.stderr)
        return 1


def _commands(flavour: Flavour) -> dict[str, Callable[[list[str]], int]]:
    from remuda.lab.nano import commands

    return {
        "server": lambda rest: _run(flavour, "server", rest),
        "agent": lambda rest: _run(flavour, "agent", rest),
        **({COMPONENTS: partial(_run_components, flavour)} if flavour.static_pods else {}),
        "token": partial(commands.token, flavour),
        "certificate": partial(commands.certificate, flavour),
        "scripts": partial(commands.scripts, flavour),
    }


def _unknown(flavour: Flavour, command: str) -> Callable[[list[str]], int]:
    def refuse(rest: list[str]) -> int:
        raise FatalError(f"no such command: {command}. {flavour.name} --help shows them")

    return refuse


def _run(flavour: Flavour, role: Role, flags: list[str]) -> int:
    host = this_host()
    configuration = read(role, flags, host, os.environ, flavour)
    return _serve(configuration, _agent(configuration, host) if role == "agent" else _server(configuration, host))


def _run_components(flavour: Flavour, arguments: list[str]) -> int:
    """Run the components of a server, by the manifest at a path. `server` starts this in a process of its own."""
    from remuda.lab.nano.component_process import read_manifest
    from remuda.lab.nano.static_pods import Components

    manifest = read_manifest(Path(arguments[0]))
    configuration = Configuration(role="server", flavour=flavour, values=manifest.values)
    return _serve(configuration, _until_stopped(lambda: Components(configuration, this_host(), manifest.version)))


def _server(configuration: Configuration, host: NanoHost) -> Service:
    from remuda.lab.nano.server import NanoServer
    from remuda.lab.nano.static_pods import StaticPodServer

    kind = StaticPodServer if configuration.flavour.static_pods else NanoServer
    return _until_stopped(lambda: kind(configuration, host, current_version(configuration.flavour)))


def _until_stopped(made: Callable[[], NanoServer]) -> Service:
    from remuda.lab.nano.follower import LeadershipMoved

    async def run(stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await made().run(stop)
            except LeadershipMoved:
                continue  # restart as the server that has the data

    return run


def _agent(configuration: Configuration, host: NanoHost) -> Service:
    from remuda.lab.nano.agent import Agent

    return Agent(configuration, host, current_version(configuration.flavour)).run


def _serve(configuration: Configuration, service: Service) -> int:
    logging.basicConfig(
        level=logging.DEBUG if configuration.flag("debug") else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for warning in configuration.warnings:
        logging.getLogger("remuda.lab.nano").warning("%s", warning)
    gc.set_threshold(20_000, 20, 50)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_signal(service))


async def _until_signal(service: Service) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await service(stop)
    return 0


def current_version(flavour: Flavour) -> str:
    """Return the version; NANO_VERSION overrides it, for tests of upgrades without a bundle."""
    return os.environ.get("NANO_VERSION") or _bundled() or flavour.unpacked


def _bundled() -> str:
    for folder in remuda.__path__:
        try:
            text = (Path(folder).parent / "VERSION").read_text().strip()
        except OSError:
            continue
        if _SHAPE.fullmatch(text):
            return text
    return ""
