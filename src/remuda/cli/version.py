"""`remuda version`: this program's, and the server's it speaks to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import remuda
from remuda.cli.connection import NoManagementPlane, connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value, tell

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_OURS = "+remuda"  # how the embedded engine's version of Kubernetes ends


@click.command(name="version", context_settings=HELP)
@click.option("--client", "only_client", is_flag=True, help="Only this program's; no server is asked.")
@output_option(TABLE, JSON, YAML)
@kubeconfig_option
def command(only_client: bool, output: str, kubeconfig: Path | None) -> None:
    """Show the version of this program, and of the server it speaks to.

    Exit code 4: no management plane answers; the program's own version is shown all the same.

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
            tell(f"{who}: {', '.join(f'{name} {value}' for name, value in facts.items())}")
    else:
        print_value(found, output)
    if unreachable is not None:
        raise unreachable


async def _server(client: HttpClient) -> dict[str, str]:
    import msgspec

    said = msgspec.json.decode(await client.raw_get("/version"))
    kubernetes = str(said.get("gitVersion", "unknown"))
    return {
        "kubernetes": kubernetes,
        "engine": "embedded" if kubernetes.endswith(_OURS) else "kubernetes",
        "address": client.access.server,
    }


def _python() -> str:
    import platform

    return platform.python_version()
