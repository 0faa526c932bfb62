"""`remuda manifest`: this program on Kubernetes, as objects to apply."""

from __future__ import annotations

import click

from remuda.cli.options import HELP


@click.command(name="manifest", context_settings=HELP)
@click.option("--image", required=True, help="An image with this program in it, as deploy/Containerfile makes it.")
@click.option("--server-url", metavar="URL", required=True, help="https://NAME[:PORT] where hosts will reach it.")
@click.option(
    "--service-type",
    type=click.Choice(["ClusterIP", "NodePort", "LoadBalancer"]),
    default="ClusterIP",
    show_default=True,
    help="Of the Service remuda-nodes, which has to be what hosts find at --server-url.",
)
@click.option(
    "--tls-secret",
    metavar="NAME",
    default="",
    help="A Secret of remuda-system with your own certificate for --server-url: tls.crt, tls.key, and in ca.crt the "
    "root that vouches for it. cert-manager makes such.",
)
@click.option(
    "--artefacts-claim",
    metavar="NAME",
    default="",
    help="A PersistentVolumeClaim of remuda-system with what nodes install from, as `remuda artefacts` keeps it.",
)
def command(image: str, server_url: str, service_type: str, tls_secret: str, artefacts_claim: str) -> None:
    """Print what runs this program on Kubernetes: namespace, account, rights, Services and a Deployment.

    One replica, with leader election: an update hands over without two at work. The same image runs the Jobs that make
    servers. It is what deploy/kubernetes.yaml was made with.

    \b
      remuda manifest --image registry.example.com/remuda:v0.1.0 \\
        --server-url https://remuda.example.com | kubectl apply -f -
    """
    from remuda.app.process import StartRefused
    from remuda.app.site import SiteSettings
    from remuda.clusterctl import manifest
    from remuda.clusterctl.program import NODES_PORT

    try:
        SiteSettings(server_url=server_url).name(("0.0.0.0", NODES_PORT))  # noqa: S104 - in a Pod
    except StartRefused as refused:
        raise click.ClickException(str(refused)) from None
    wanted = manifest.Wanted(
        image=image,
        server_url=server_url,
        service_type="" if service_type == "ClusterIP" else service_type,
        tls_secret=tls_secret,
        artefacts_claim=artefacts_claim,
    )
    click.echo(manifest.render(wanted), nl=False)
