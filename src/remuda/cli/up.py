"""`remuda up`: the embedded API server and the controllers in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.cli.controller_options import controllers_option, node_options, site_settings, user_quota_option
from remuda.cli.options import HELP
from remuda.cli.server_options import (
    audit_log_option,
    log_options,
    log_settings,
    server_options,
    server_settings,
    split_address,
)


@click.command(name="up", context_settings=HELP)
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
    the stored state. One line is printed when everything is ready. SIGTERM or Ctrl-C stops it cleanly.

    \b
      remuda up --data-dir ./remuda-data
      kubectl --kubeconfig ./remuda-data/admin.kubeconfig get clusters -A
      remuda up --listen 0.0.0.0:443 --server-url https://remuda.example.com \\
        --tls-cert chain.pem --tls-key key.pem
    """
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
    )
    logs = log_settings(
        log_format=log_format,
        log_level=log_level,
        verbose=verbose,
        audit_log=audit_log,
        data_dir=settings.server.data_dir,
    )
    raise SystemExit(run(settings, logs))
