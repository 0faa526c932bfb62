"""Schedule and destination of etcd snapshots: settings of hosts with etcd. The distribution takes them itself."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

from remuda.providers.controlplane.planner.observation import Cluster, S3Access
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.plan import File


def settings(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = {}
    etcd = cluster.spec.etcd
    if etcd is not None:
        if etcd.disable_snapshots:
            found["etcd-disable-snapshots"] = True
        if etcd.snapshot_retention:
            found["etcd-snapshot-retention"] = etcd.snapshot_retention
        if etcd.snapshot_schedule_cron:
            found["etcd-snapshot-schedule-cron"] = etcd.snapshot_schedule_cron
    if cluster.s3 is not None and _is_enabled(cluster.s3):
        found |= _s3(cluster, cluster.s3)
    return found


def files(cluster: Cluster) -> list[File]:
    """The authority of the service, unless it is a file of the host already."""
    if cluster.s3 is None or not _is_enabled(cluster.s3):
        return []
    content, path = _authority(cluster, cluster.s3)
    return [File(path=path, content=content)] if content else []


def _is_enabled(access: S3Access) -> bool:
    s3 = access.s3
    return any((s3.bucket, s3.endpoint, s3.folder, s3.region, s3.cloud_credential_name))


def _s3(cluster: Cluster, access: S3Access) -> dict[str, Any]:
    s3 = access.s3
    found = {
        "etcd-s3": True,
        "etcd-s3-bucket": s3.bucket,
        "etcd-s3-access-key": access.access_key,
        "etcd-s3-secret-key": access.secret_key,
        "etcd-s3-region": s3.region,
        "etcd-s3-folder": s3.folder,
        "etcd-s3-endpoint": s3.endpoint,
        "etcd-s3-endpoint-ca": _authority(cluster, access)[1],
        "etcd-s3-skip-ssl-verify": s3.skip_ssl_verify or None,
        "etcd-s3-retention": s3.retention,
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def _authority(cluster: Cluster, access: S3Access) -> tuple[bytes, str]:
    """Return the content of the endpoint's CA file, if it is to be written, and the path of that file."""
    given = access.s3.endpoint_ca
    if not given or (given.endswith(".crt") and "\n" not in given):
        return b"", given
    content = given.encode()
    if "-----BEGIN" not in given:
        try:
            content = base64.b64decode("".join(given.split()), validate=True)
        except (binascii.Error, ValueError):
            return b"", ""  # refused at admission
    name = hashlib.md5(given.encode(), usedforsecurity=False).hexdigest()[:5]
    return content, layout.of(cluster).config_file(f"s3-endpoint-ca-{name}.crt")
