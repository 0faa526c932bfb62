"""Kubeconfig of a cluster whose control plane has no provider, created from the CA of the cluster.

The Secrets have the names that Cluster API defines: `<cluster>-ca` holds the CA, which the user creates, and
`<cluster>-kubeconfig` holds the kubeconfig of an administrator. An existing kubeconfig is never replaced.
"""

from __future__ import annotations

import base64
import contextlib
import datetime

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remuda.capi import names
from remuda.capi.cluster.scope import ClusterScope
from remuda.capi.contract import Json
from remuda.capi.remote import SECRET, secret_data
from remuda.kube import clock
from remuda.kube import kubeconfig as kubeconfigs
from remuda.kube.authorization import MASTERS
from remuda.kube.client import Client
from remuda.kube.errors import AlreadyExists
from remuda.kube.objects import Object
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import DONE, Blocked, Outcome, Retryable
from remuda.runtime.steps import step

CREATE = step("cluster.create-kubeconfig", "creates the kubeconfig of a cluster without a control plane provider")

_ADMIN = "kubernetes-admin"
_LIFETIME = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(minutes=5)  # the clock of the API server may be behind ours
_LOOK_AGAIN_SECONDS = 30.0  # a CA without the Cluster's label cannot be watched for


async def ensure_kubeconfig(client: Client, secrets: Informer[Object], scope: ClusterScope) -> Outcome:
    if scope.control_plane.ref is not None or not scope.endpoint_known:
        return DONE
    namespace, cluster = scope.key
    if secrets.get(namespace, names.kubeconfig_secret(cluster)) is not None:
        return DONE
    # The informer caches only the metadata of Secrets: the key of the CA is read when needed, and not stored.
    authority = await secret_data(client, namespace, names.ca_secret(cluster))
    if authority is None:
        on = f"Secret {namespace}/{names.ca_secret(cluster)}"
        missing = "does not exist yet: create it with the CA of the cluster, as tls.crt and tls.key"
        return Blocked("WaitingForClusterCA", on, missing, check_after=_LOOK_AGAIN_SECONDS)
    endpoint = scope.draft.spec["controlPlaneEndpoint"]
    config = make_kubeconfig(cluster, endpoint["host"], endpoint["port"], authority)
    # Another client was faster. Its kubeconfig is kept, like every existing one.
    with contextlib.suppress(AlreadyExists):
        async with CREATE:
            await client.create(SECRET.target, namespace, _secret(scope, config))
    return DONE


def make_kubeconfig(cluster: str, host: str, port: int, authority: dict[str, bytes]) -> Json:
    """Return a kubeconfig for an administrator, valid for a year. Raises Retryable for a CA that cannot sign."""
    try:
        ca = x509.load_pem_x509_certificate(authority["tls.crt"])
        ca_key = serialization.load_pem_private_key(authority["tls.key"], password=None)
    except (KeyError, ValueError, TypeError) as error:
        raise Retryable(f"cannot read the CA in Secret {names.ca_secret(cluster)}: {error}") from None
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise Retryable(f"cannot use the CA in Secret {names.ca_secret(cluster)}: tls.key is neither RSA nor EC")
    key = ec.generate_private_key(ec.SECP256R1())
    config = kubeconfigs.build(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_pem=authority["tls.crt"],
        client_certificate_pem=_admin_certificate(key, ca, ca_key).public_bytes(serialization.Encoding.PEM),
        client_key_pem=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ),
        name=cluster,
        user=f"{cluster}-admin",
    )
    config["contexts"][0]["name"] = config["current-context"] = f"{cluster}-admin@{cluster}"
    return config


def _admin_certificate(
    key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
) -> x509.Certificate:
    now = datetime.datetime.fromtimestamp(clock.time(), datetime.UTC)
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, MASTERS), x509.NameAttribute(NameOID.COMMON_NAME, _ADMIN)]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(min(now + _LIFETIME, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_client_key_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _client_key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _secret(scope: ClusterScope, config: Json) -> Json:
    owner = scope.owner
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": names.SECRET_TYPE,
        "metadata": {
            "name": names.kubeconfig_secret(owner.name),
            "labels": {names.CLUSTER_NAME: owner.name},
            "ownerReferences": [
                {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            ],
        },
        "data": {names.KUBECONFIG_KEY: base64.b64encode(yaml.safe_dump(config, sort_keys=False).encode()).decode()},
    }
