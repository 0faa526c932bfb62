"""`remuda apiserver`: the engine alone."""

from __future__ import annotations

import re
from pathlib import Path

import click

_ADDRESS = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})", re.ASCII)


def _split_address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found["port"]) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, for example 127.0.0.1:6443 or [::1]:6443")
    return found["six"] or found["host"] or "0.0.0.0", int(found["port"])  # noqa: S104 - no host: every address


@click.command(name="apiserver", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where state, keys and admin.kubeconfig live. Made at the first start.",
)
@click.option(
    "--listen",
    default="127.0.0.1:6443",
    show_default=True,
    callback=_split_address,
    help="HOST:PORT to serve HTTPS on. Port 0 takes a free one.",
)
@click.option("--tls-san", multiple=True, help="Another name or address clients reach this server by. May be repeated.")
@click.option(
    "--token-auth-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='CSV of static bearer tokens: token,user,uid,"group1,group2".',
)
@click.option(
    "--upkeep/--no-upkeep",
    default=True,
    show_default=True,
    help="Garbage collection, namespaces, tokens, role aggregation. Off where kube-controller-manager does them.",
)
@click.option(
    "--event-ttl", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="Seconds events live."
)
@click.option("-v", "--verbose", is_flag=True, help="Log requests and decisions.")
def command(
    data_dir: Path,
    listen: tuple[str, int],
    tls_san: tuple[str, ...],
    token_auth_file: Path | None,
    upkeep: bool,
    event_ttl: float,
    verbose: bool,
) -> None:
    """Run the embedded Kubernetes API server.

    The first start makes a certificate authority, keys and DATA_DIR/admin.kubeconfig; later starts go on where the
    last one ended. One line is printed when the server is ready. SIGTERM or Ctrl-C ends it cleanly.
    """
    from remuda.app.apiserver import Settings, run

    host, port = listen
    settings = Settings(
        data_dir=data_dir,
        host=host,
        port=port,
        names=tls_san,
        token_file=token_auth_file,
        upkeep=upkeep,
        event_ttl_seconds=event_ttl,
    )
    raise SystemExit(run(settings, verbose=verbose))
