"""`remuda version`: versions of the client and of its server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import remuda
from remuda.cli.connection import NoManagementPlane, connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_text, print_value

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_OURS = "+remuda"  # suffix of the embedded API server's version


@click.command(name="version", context_settings=HELP)
@click.option(
    "--client", "only_client", is_flag=True, help="Show only the client version, without contacting a server."
)
@output_option(TABLE, JSON, YAML)
@kubeconfig_option
def command(only_client: bool, output: str, kubeconfig: Path | None) -> None:
    """Show the versions of the client and of the server.

    Exit code 4: no management plane answers; the client version is shown nevertheless.

    \b
      remuda version
      remuda version --client -o json
    """
    found: dict[str, dict[str, str]] = {"client": {"version": remuda.__version__, "python": _python()}}
    unreachable: NoManagementPlane | None = None
    if not only_client:
        try:
            found["server"] = connected(kubeconfig, _server)
        except NoManagementPlane as error:
            unreachable = error
    if output == TABLE:
        for who, facts in found.items():
            print_text(f"{who}: {', '.join(f'{name} {value}' for name, value in facts.items())}")
    else:
        print_value(found, output)
    if unreachable is not None:
        raise unreachable


async def _server(client: HttpClient) -> dict[str, str]:
    import msgspec

    answer = msgspec.json.decode(await client.raw_get("/version"))
    kubernetes = str(answer.get("gitVersion", "unknown"))
    return {
        "kubernetes": kubernetes,
        "engine": "embedded" if kubernetes.endswith(_OURS) else "kubernetes",
        "address": client.access.server,
    }


def _python() -> str:
    import platform

    return platform.python_version()
