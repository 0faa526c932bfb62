"""The command line: `nano server`, `nano agent`, and K3s' other commands as far as a stand-in has them."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

from remuda.nano import version
from remuda.nano.configuration import Configuration, Refused, Role, read
from remuda.nano.host import Host, this_host

HELP = """\
nano: a stand-in for K3s that runs no Pods.

It has K3s' flags, files, ports, tokens, certificates and member list of etcd, and a real Kubernetes API, so that
everything around a cluster can be tried without one. Nothing is ever started on its nodes: a Pod that is bound to one
is Running in name only. The data is with one server; losing that one is losing the cluster. It is not for production.

usage: nano COMMAND [FLAGS]

  server                  run a server (and a node on it)
  agent                   run a node
  token generate          print a new bootstrap token, for nobody yet
  token create            make a bootstrap token that agents may join with [--ttl 24h] [--description TEXT]
  token list | delete ID  show, or take back, bootstrap tokens
  certificate check       how long the certificates of this host are good
  certificate rotate      put this server's certificates aside; new ones are made at its next start
  scripts DIRECTORY       write nano-killall.sh, nano-uninstall.sh and nano-agent-uninstall.sh there
  --version               print the version

Flags are those of K3s; config files are /etc/rancher/nano/config.yaml and config.yaml.d/*.yaml.
"""


def main(arguments: Sequence[str]) -> int:
    command, rest = (arguments[0], list(arguments[1:])) if arguments else ("help", [])
    if command in ("-v", "--version", "version"):
        print(f"nano version {version.current()}")
        return 0
    if command in ("help", "-h", "--help") or {"-h", "--help"} & set(rest):
        print(HELP, end="")
        return 0
    try:
        return _commands().get(command, _unknown(command))(rest)
    except Refused as refused:
        print(f"nano {command}: {refused}", file=sys.stderr)
        return 1


def _commands() -> dict[str, Callable[[list[str]], int]]:
    from remuda.nano import commands

    return {
        "server": lambda rest: _run("server", rest),
        "agent": lambda rest: _run("agent", rest),
        "token": commands.token,
        "certificate": commands.certificate,
        "scripts": commands.scripts,
    }


def _unknown(command: str) -> Callable[[list[str]], int]:
    def refuse(rest: list[str]) -> int:
        raise Refused(f"no such command: {command}. nano --help shows them")

    return refuse


def _run(role: Role, flags: list[str]) -> int:
    host = this_host()
    configuration = read(role, flags, host, os.environ)
    logging.basicConfig(
        level=logging.DEBUG if configuration.flag("debug") else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for warning in configuration.warnings:
        logging.getLogger("remuda.nano").warning("%s", warning)
    gc.set_threshold(20_000, 20, 50)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(role, configuration, host))


async def _serve(role: Role, configuration: Configuration, host: Host) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if role == "server":
        from remuda.nano.follower import Moved
        from remuda.nano.server import Server

        while not stop.is_set():
            try:
                await Server(configuration, host, version.current()).run(stop)
            except Moved:
                continue  # as the server that keeps the data
    else:
        from remuda.nano.agent import Agent

        await Agent(configuration, host, version.current()).run(stop)
    return 0
