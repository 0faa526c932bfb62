"""`remuda-agent`: run, install, uninstall, supervise, version; on hosts that are folders also systemctl and keep."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from remuda.agent import PYTHON

if TYPE_CHECKING:
    from remuda.agent.folder_host import Units


def main(units: Units | None = None) -> int:
    """`units` runs units on hosts that are folders."""
    if sys.version_info < PYTHON:
        sys.stderr.write(f"remuda-agent needs Python {PYTHON[0]}.{PYTHON[1]} or newer\n")
        return 1
    arguments = _parser().parse_args()
    if arguments.command == "install":
        from remuda.agent.install import install

        return install(os.environ)
    if arguments.command == "uninstall":
        from remuda.agent.service import uninstall

        return uninstall(os.environ, units)
    if arguments.command == "version":
        return _version()
    if arguments.command == "supervise":
        return _supervise(arguments)
    if arguments.command in ("systemctl", "keep"):
        return _on_folder_host(arguments, units)
    from remuda.agent.run import run

    return run(arguments.config, arguments.root, arguments.address, units)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="remuda-agent", description="Apply the Machine Plan of this host.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, words in (("run", "follow the plan until stopped"), ("supervise", "keep `run` running, without systemd")):
        command = commands.add_parser(name, help=words)
        default = os.environ.get("CATTLE_AGENT_CONFIG") or "/etc/rancher/agent/config.yaml"
        command.add_argument("--config", metavar="FILE", default=default, help="default: %(default)s")
        command.add_argument("--root", metavar="DIR", default="", help="root of a host that is a folder")
        command.add_argument("--address", metavar="ADDRESS", default="", help="address of the host, if it has its own")
    commands.add_parser(
        "install", help="register this host and start the agent; settings come from environment variables"
    )
    commands.add_parser("uninstall", help="stop the agent and remove everything that install created")
    commands.add_parser("version", help="print the version of this agent")
    systemctl = commands.add_parser("systemctl", help="replace systemctl on a host that is a folder")
    systemctl.add_argument("words", nargs="*", metavar="WORD", help="arguments of systemctl, after --")
    keep = commands.add_parser("keep", help="keep one unit of such a host running")
    keep.add_argument("unit", metavar="UNIT")
    for command in (systemctl, keep):
        command.add_argument("--root", metavar="DIR", required=True, help="root of the host")
    return parser


def _on_folder_host(arguments: argparse.Namespace, units: Units | None) -> int:
    if units is None:
        sys.stderr.write("remuda-agent: this program contains nothing that runs units on hosts that are folders\n")
        return 1
    if arguments.command == "systemctl":
        return units.systemctl(arguments.root, arguments.words)
    return units.keep(arguments.root, arguments.unit)


def _supervise(arguments: argparse.Namespace) -> int:
    from remuda.agent import config, log, program, supervise

    try:
        found = config.load(arguments.config)
    except config.ConfigError as error:
        log.error(str(error))
        return 1
    given = ["--config", arguments.config]
    for name in ("root", "address"):
        if getattr(arguments, name):
            given += [f"--{name}", getattr(arguments, name)]
    return supervise.supervise(program.own_path(), os.path.dirname(found.journal_file), given)


def _version() -> int:
    """Print the SHA-256 checksum of this program, its version. The manager serves one; a host may have another."""
    import hashlib

    from remuda.agent import disk, program

    content = disk.read(program.own_path()) if program.own_path() else None
    print("remuda-agent", hashlib.sha256(content).hexdigest() if content is not None else "(not a single file)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
