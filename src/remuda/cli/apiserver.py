"""`remuda apiserver`: the embedded API server without controllers."""

from __future__ import annotations

from typing import Any

import click

from remuda.cli.server_config import ServerCommand
from remuda.cli.server_options import log_options, log_settings, server_options, server_settings


@click.command(name="apiserver", cls=ServerCommand)
@server_options
@log_options
def command(log_format: str, log_level: str | None, verbose: int, **options: Any) -> None:
    """Run the embedded Kubernetes API server, without controllers.

    The first start creates a certificate authority, keys and DATA_DIR/admin.kubeconfig; later starts reuse them and
    the stored state. The server prints one line when it is ready. SIGTERM or Ctrl-C stops it cleanly.

    \b
      remuda apiserver --data-dir ./remuda-data --listen 127.0.0.1:6443
    """
    from remuda.app.apiserver import run

    logs = log_settings(log_format=log_format, log_level=log_level, verbose=verbose)
    raise SystemExit(run(server_settings(**options), logs))
