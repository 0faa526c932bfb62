"""`remuda apiserver`: the engine alone."""

from __future__ import annotations

from typing import Any

import click

from remuda.cli.options import HELP
from remuda.cli.server_options import server_options, server_settings


@click.command(name="apiserver", context_settings=HELP)
@server_options
@click.option("-v", "--verbose", is_flag=True, help="Log requests and decisions.")
def command(verbose: bool, **options: Any) -> None:
    """Run the embedded Kubernetes API server.

    The first start makes a certificate authority, keys and DATA_DIR/admin.kubeconfig; later starts go on where the
    last one ended. One line is printed when the server is ready. SIGTERM or Ctrl-C ends it cleanly.

    \b
      remuda apiserver --data-dir ./remuda-data --listen 127.0.0.1:6443
    """
    from remuda.app.apiserver import run

    raise SystemExit(run(server_settings(**options), verbose=verbose))
