"""`remuda up`: the embedded API server and the controllers in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import local_server
from remuda.cli.controller_options import controllers_option, node_options, site_settings, user_quota_option
from remuda.cli.server_config import ServerCommand
from remuda.cli.server_options import (
    audit_log_option,
    log_options,
    log_settings,
    server_options,
    server_settings,
    split_address,
)
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.app.server_record import ServerRecord


@click.command(name="up", cls=ServerCommand)
@click.option(
    "-d",
    "--detach",
    is_flag=True,
    allow_from_autoenv=False,
    help="Run in the background. Return when everything is ready; log to DATA_DIR/log/up.log.",
)
@server_options
@controllers_option
@node_options
@user_quota_option
@click.option(
    "--health-listen",
    metavar="HOST:PORT",
    callback=split_address,
    help="Serve /healthz, /readyz and /metrics of the controllers on this address (HTTP). Default: not served.",
)
@audit_log_option
@log_options
def command(
    detach: bool,
    controllers: tuple[str, ...],
    server_url: str,
    server_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    assets: Path | None,
    artefacts: Path | None,
    bootstrap_token_ttl: float,
    job_timeout: float,
    rancher_machine: str,
    user_quota: dict[str, int],
    health_listen: tuple[str, int] | None,
    audit_log: str,
    log_format: str,
    log_level: str | None,
    verbose: int,
    **options: Any,
) -> None:
    """Run the whole management plane in one process: the embedded API server, the controllers, and the endpoints for
    hosts.

    The first start creates a certificate authority, keys and DATA_DIR/admin.kubeconfig; later starts reuse them and
    the stored state. One line is printed when everything is ready. SIGTERM or Ctrl-C stops it cleanly; so does
    `remuda down`. Hosts go on running meanwhile.

    Every option has an environment variable (--data-dir: REMUDA_DATA_DIR) and a key in the table [up] of the
    configuration file (data-dir). The command line comes first, then the variable, then the file.

    \b
      remuda up --detach
      remuda up --data-dir ./remuda-data
      kubectl --kubeconfig ./remuda-data/admin.kubeconfig get clusters -A
      remuda up --listen 0.0.0.0:443 --server-url https://remuda.example.com \\
        --tls-cert chain.pem --tls-key key.pem
    """

    def serve(log_file: Path | None = None) -> int:
        from remuda.access.types import Quota
        from remuda.app.up import UpSettings, run
        from remuda.providers.bootstrap.setup import BootstrapSettings
        from remuda.providers.shared.jobs.settings import MachineSettings

        settings = UpSettings(
            server=server_settings(**options),
            controllers=controllers,
            health=health_listen,
            site=site_settings(server_url, server_ca, tls_cert, tls_key, assets, artefacts),
            bootstrap=BootstrapSettings(token_ttl_seconds=bootstrap_token_ttl),
            machine=MachineSettings(job_seconds=int(job_timeout), rancher_machine=rancher_machine),
            user_quota=Quota(**user_quota),
            log_file=log_file,
        )
        logs = log_settings(
            log_format=log_format,
            log_level=log_level,
            verbose=verbose,
            audit_log=audit_log,
            data_dir=settings.server.data_dir,
            log_file=log_file,
        )
        return run(settings, logs)

    if detach:
        _run_in_background(options["data_dir"], serve)
    else:
        raise SystemExit(serve())


def _run_in_background(data_dir: Path, serve: Callable[[Path], int]) -> None:
    """Start a server in the background. The child imports the program, so that this process can report progress."""
    from remuda.app import background, server_record
    from remuda.app.log_setup import SERVER_FILE

    log = (data_dir / SERVER_FILE).absolute()
    local_server.wait_while_starting(data_dir)
    found = server_record.find(data_dir)
    if found.record is not None:
        print_note(f"a server runs already on the data directory {data_dir}; its options stay as they are")
        _print_started(data_dir, found.record)
        return
    try:
        record = background.start(data_dir, log, lambda: serve(log), print_note)
    except background.StartFailed as error:
        raise click.ClickException(str(error)) from None
    _print_started(data_dir, record)


def _print_started(data_dir: Path, record: ServerRecord) -> None:
    click.echo(f"remuda is ready at {record.url}")
    click.echo(f"  pid         {record.pid}")
    click.echo(f"  kubeconfig  {data_dir / 'admin.kubeconfig'}")
    if record.log_file:
        click.echo(f"  log         {record.log_file}")
    click.echo(f"  stop        remuda down{local_server.flag(data_dir)}")
