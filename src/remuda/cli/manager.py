"""`remuda manager`: the controllers on an existing Kubernetes."""

from __future__ import annotations

from pathlib import Path

import click

from remuda.cli.controller_options import controllers_option, node_options, site_settings, user_quota_option
from remuda.cli.server_config import ServerCommand
from remuda.cli.server_options import audit_log_option, log_options, log_settings, split_address


@click.command(name="manager", cls=ServerCommand)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the Kubernetes cluster that stores the objects. Default: $KUBECONFIG, this Pod's service "
    "account, ~/.kube/config.",
)
@click.option("--context", default="", help="Context of the kubeconfig. Default: its current context.")
@controllers_option
@click.option(
    "--namespace",
    "-n",
    default="",
    help="Manage objects of this namespace only. Default: all namespaces. CRDs are still cluster-wide: without the "
    "right to write them, they must be installed already and readable.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Run the controllers only while holding the Lease, so that several replicas can run.",
)
@click.option(
    "--lease-namespace",
    default="",
    help="Namespace of the Lease and of the webhooks' certificates, created if missing. Default: --namespace, else "
    "remuda-system.",
)
@click.option(
    "--lease-seconds",
    type=click.FloatRange(min=3),
    default=15.0,
    show_default=True,
    help="Time within which another replica takes over after the leader dies.",
)
@click.option(
    "--health-listen",
    metavar="HOST:PORT",
    callback=split_address,
    help="Serve /healthz, /readyz and /metrics on this address (HTTP). Default: not served.",
)
@click.option(
    "--webhook-listen",
    metavar="HOST:PORT",
    callback=split_address,
    help="Serve admission webhooks on this address (HTTPS, every replica) and register them with the API server. "
    "Without it, objects are validated by their schemas only, and controllers do not act on invalid ones.",
)
@click.option(
    "--webhook-url",
    metavar="URL",
    default="",
    help="URL under which the API server reaches --webhook-listen, the same for all replicas; "
    "https://NAME.NAMESPACE.svc[:PORT] is a Service. Default: https://HOST:PORT of --webhook-listen.",
)
@click.option(
    "--nodes-listen",
    metavar="HOST:PORT",
    callback=split_address,
    help="Serve hosts on this address (HTTPS, every replica): install script, agent, registration, and access to their "
    "plan Secrets. Without it, the controllers of the group providers do not run.",
)
@node_options
@user_quota_option
@click.option(
    "--run-jobs/--no-run-jobs",
    default=False,
    show_default=True,
    help="Run the Jobs that create servers as processes of this manager instead of as Pods of the cluster.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the audit log; with --run-jobs also of Jobs and of the hosts that they create on this machine.",
)
@click.option(
    "--job-image", default="", help="Image of the Jobs, which must contain this program. Not used with --run-jobs."
)
@click.option(
    "--remove-webhooks",
    is_flag=True,
    allow_from_autoenv=False,
    help="Remove the registration of the webhooks and exit. The registration outlives the managers, and the API server "
    "refuses every write of the registered kinds while no manager runs: use this when you stop using the manager.",
)
@audit_log_option
@log_options
def command(
    kubeconfig: Path | None,
    context: str,
    controllers: tuple[str, ...],
    namespace: str,
    leader_elect: bool,
    lease_namespace: str,
    lease_seconds: float,
    health_listen: tuple[str, int] | None,
    webhook_listen: tuple[str, int] | None,
    webhook_url: str,
    nodes_listen: tuple[str, int] | None,
    server_url: str,
    server_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    assets: Path | None,
    artefacts: Path | None,
    bootstrap_token_ttl: float,
    job_timeout: float,
    rancher_machine: str,
    run_jobs: bool,
    data_dir: Path | None,
    job_image: str,
    user_quota: dict[str, int],
    remove_webhooks: bool,
    audit_log: str,
    log_format: str,
    log_level: str | None,
    verbose: int,
) -> None:
    """Run the controllers on an existing Kubernetes cluster.

    The manager installs and updates its CRDs, and stands by while another replica leads. Where upstream's Cluster API
    is installed, it refuses to start and changes nothing: run it there with
    --controllers=providers,provisioning,access.

    It prints one line when it is ready, and one when it becomes the leader. SIGTERM or Ctrl-C stops it cleanly and
    releases the Lease at once.

    Every option has an environment variable (--server-url: REMUDA_SERVER_URL) and a key in the table [manager] of the
    configuration file (server-url). The command line comes first, then the variable, then the file.

    \b
      remuda manager --kubeconfig ~/.kube/config \\
        --server-url https://remuda.example.com
      remuda manager --controllers=providers,provisioning,access
    """
    from remuda.access.types import Quota
    from remuda.app import manager
    from remuda.providers.bootstrap.setup import BootstrapSettings
    from remuda.providers.shared.jobs.settings import MachineSettings

    settings = manager.ManagerSettings(
        kubeconfig=kubeconfig,
        context=context,
        controllers=controllers,
        namespace=namespace,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        lease_seconds=lease_seconds,
        health=health_listen,
        webhooks=webhook_listen,
        webhook_url=webhook_url,
        nodes=nodes_listen,
        site=site_settings(server_url, server_ca, tls_cert, tls_key, assets, artefacts),
        bootstrap=BootstrapSettings(token_ttl_seconds=bootstrap_token_ttl),
        machine=MachineSettings(
            run_jobs=run_jobs, image=job_image, job_seconds=int(job_timeout), rancher_machine=rancher_machine
        ),
        data_dir=data_dir,
        user_quota=Quota(**user_quota),
    )
    serve = manager.remove_webhooks if remove_webhooks else manager.run
    logs = log_settings(
        log_format=log_format, log_level=log_level, verbose=verbose, audit_log=audit_log, data_dir=data_dir
    )
    raise SystemExit(serve(settings, logs))
