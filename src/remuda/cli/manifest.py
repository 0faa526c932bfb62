"""`remuda manifest`: the objects that install Remuda on Kubernetes."""

from __future__ import annotations

import click

from remuda.cli.options import HELP


@click.command(name="manifest", context_settings=HELP)
@click.option("--image", required=True, help="Container image with this program, as deploy/Containerfile builds it.")
@click.option(
    "--server-url", metavar="URL", required=True, help="URL (https://NAME[:PORT]) under which hosts will reach it."
)
@click.option(
    "--service-type",
    type=click.Choice(["ClusterIP", "NodePort", "LoadBalancer"]),
    default="ClusterIP",
    show_default=True,
    help="Type of the Service remuda-nodes, which hosts must reach at --server-url.",
)
@click.option(
    "--tls-secret",
    metavar="NAME",
    default="",
    help="Secret in remuda-system with your own certificate for --server-url: tls.crt, tls.key, and its root "
    "certificate in ca.crt, as cert-manager writes it.",
)
@click.option(
    "--artefacts-claim",
    metavar="NAME",
    default="",
    help="PersistentVolumeClaim in remuda-system with the files that `remuda artefacts` manages.",
)
def command(image: str, server_url: str, service_type: str, tls_secret: str, artefacts_claim: str) -> None:
    """Print the manifest that installs Remuda on Kubernetes: Namespace, ServiceAccount, RBAC, Services, Deployment.

    The Deployment has one replica with leader election, so that only one version acts during an update. The
    Jobs that create servers use the same image. deploy/kubernetes.yaml is the output of this command.

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
    wanted = manifest.ManifestOptions(
        image=image,
        server_url=server_url,
        service_type="" if service_type == "ClusterIP" else service_type,
        tls_secret=tls_secret,
        artefacts_claim=artefacts_claim,
    )
    click.echo(manifest.render(wanted), nl=False)
