"""Node configuration of a cluster: the part of a spec that `provisioning.cattle.io` Clusters and RKEControlPlanes
have in common, word for word.

It has every field of upstream's. Admission denies those that do nothing yet when they are set to anything but their
default: none is silently ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from remuda.capi.types.shared import Selector
from remuda.kube.objects import Field, Part
from remuda.kube.schema import Rule

CONCURRENCY = r"^((([1-9]|[1-9][0-9]|100)%)|([1-9][0-9]*|0)|)$"
Concurrency = Annotated[
    str,
    Field(
        'Number of nodes at a time: a number, a percentage ("10%", rounded up), or 0 for all; 1 if unset.',
        pattern=CONCURRENCY,
    ),
]


class EnvVar(Part):
    name: Annotated[str, Field("Its name.", required=True, min_length=1)] = ""
    value: Annotated[str, Field("Value of the variable; a variable with an empty value is omitted.")] = ""


class Taint(Part):
    """A taint of a Node."""

    key: Annotated[str, Field("Its key.", required=True, min_length=1)] = ""
    value: Annotated[str, Field("Its value.")] = ""
    effect: Annotated[
        str, Field("Effect of the taint.", required=True, enum=("NoSchedule", "PreferNoSchedule", "NoExecute"))
    ] = ""
    time_added: Annotated[str | None, Field("Kept for manifests that have it; not used.", format="date-time")] = None

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


# ---- upgrades ----------------------------------------------------------------------------------------------------


class DrainHook(Part):
    annotation: Annotated[
        str, Field("Set by the hook on the plan Secret, to the value of the request, when it is done.")
    ] = ""


class DrainOptions(Part):
    """Drain of a node before its services restart."""

    enabled: Annotated[bool, Field("Whether nodes are drained.")] = False
    force: Annotated[bool, Field("Also drain Pods without a controller.")] = False
    ignore_daemon_sets: Annotated[bool | None, Field("Leave Pods of DaemonSets where they are; true if unset.")] = None
    ignore_errors: Annotated[bool, Field("Not supported.")] = False
    delete_empty_dir_data: Annotated[bool, Field("Also drain Pods with emptyDir volumes, whose data is lost.")] = False
    disable_eviction: Annotated[bool, Field("Delete Pods instead of evicting them, ignoring PodDisruptionBudgets.")] = (
        False
    )
    grace_period: Annotated[
        int, Field("Seconds that a Pod has to terminate; if negative, the Pod's own grace period.")
    ] = 0
    timeout: Annotated[int, Field("Time limit of the drain, in seconds; 600 if 0.", minimum=0)] = 0
    skip_wait_for_delete_timeout_seconds: Annotated[
        int,
        Field(
            "Do not wait for Pods that have been terminating for longer than this many seconds; if 0, wait for all.",
            minimum=0,
        ),
    ] = 0
    pre_drain_hooks: Annotated[
        Sequence[DrainHook], Field("Hooks to wait for before the drain.", list_type="atomic")
    ] = ()
    post_drain_hooks: Annotated[
        Sequence[DrainHook], Field("Hooks to wait for after the drain.", list_type="atomic")
    ] = ()


class UpgradeStrategy(Part):
    """How changes are rolled out to existing nodes."""

    control_plane_concurrency: Concurrency = ""
    control_plane_drain_options: Annotated[DrainOptions, Field("Drain options of servers.")] = DrainOptions()
    worker_concurrency: Concurrency = ""
    worker_drain_options: Annotated[DrainOptions, Field("Drain options of workers.")] = DrainOptions()


# ---- config and files --------------------------------------------------------------------------------------------


class SelectorConfig(Part):
    machine_label_selector: Annotated[Selector | None, Field("Selector of the Machines; all if unset.")] = None
    config: Annotated[
        Mapping[str, Any], Field("Configuration that overrides machineGlobalConfig.", preserve_unknown=True)
    ] = {}


class KeyToPath(Part):
    key: Annotated[str, Field("Of the Secret or ConfigMap.", required=True)] = ""
    path: Annotated[str, Field("Absolute path on the host.", required=True)] = ""
    dynamic: Annotated[bool, Field("A change of the file does not restart the node.")] = False
    permissions: Annotated[str, Field("Octal digits.")] = ""
    hash: Annotated[str, Field("base64 of the sha256 that the content must have.")] = ""


class FileSourceObject(Part):
    """It must be in the Cluster's namespace, and name the cluster in the annotation
    rke.cattle.io/object-authorized-for-clusters."""

    name: Annotated[str, Field("Of the Secret or ConfigMap.", required=True)] = ""
    items: Annotated[Sequence[KeyToPath], Field("Keys and their paths on the host.", list_type="atomic")] = ()
    default_permissions: Annotated[str, Field("Octal digits; 600 if unset.")] = ""


class FileSource(Part):
    secret: Annotated[FileSourceObject | None, Field("A Secret, or …")] = None
    config_map: Annotated[FileSourceObject | None, Field("… a ConfigMap.")] = None


class SelectorFiles(Part):
    machine_label_selector: Annotated[Selector | None, Field("Selector of the Machines; all if unset.")] = None
    file_sources: Annotated[
        Sequence[FileSource],
        Field(
            "Sources of the files.",
            list_type="atomic",
            items=Field(
                rules=(Rule(rule="!(has(self.secret) && has(self.configMap))", message="either secret or configMap"),)
            ),
        ),
    ] = ()


# ---- registries --------------------------------------------------------------------------------------------------


class Mirror(Part):
    endpoint: Annotated[Sequence[str], Field("Tried in this order.", list_type="atomic")] = ()
    rewrite: Annotated[Mapping[str, str], Field("Patterns of image names and their replacements.")] = {}


class RegistryConfig(Part):
    auth_config_secret_name: Annotated[
        str,
        Field(
            "A Secret of type rke.cattle.io/auth-config, kubernetes.io/basic-auth or kubernetes.io/dockerconfigjson."
        ),
    ] = ""
    tls_secret_name: Annotated[str, Field("A Secret of type kubernetes.io/tls: the client's certificate.")] = ""
    ca_bundle: Annotated[str, Field("base64 of PEM.", format="byte")] = msgspec.field(name="caBundle", default="")
    insecure_skip_verify: Annotated[bool, Field("Skip the verification of certificates.")] = False


class Registries(Part):
    mirrors: Annotated[
        Mapping[str, Mirror], Field("Mirrors by registry name; * for all other registries.", max_properties=1000)
    ] = {}
    configs: Annotated[
        Mapping[str, RegistryConfig], Field("TLS and authentication settings, by registry host.", max_properties=1000)
    ] = {}


# ---- etcd --------------------------------------------------------------------------------------------------------


class S3(Part):
    """S3 bucket for snapshots, in addition to the node's own disk."""

    endpoint: Annotated[str, Field("Of the service; the credential's default if unset.")] = ""
    endpoint_ca: Annotated[str, Field("A path ending in .crt, PEM, or base64 of PEM.")] = msgspec.field(
        name="endpointCA", default=""
    )
    skip_ssl_verify: Annotated[bool, Field("Skip the verification of certificates.")] = msgspec.field(
        name="skipSSLVerify", default=False
    )
    bucket: Annotated[str, Field("Of the service.", max_length=63)] = ""
    region: Annotated[str, Field("Of the bucket.")] = ""
    folder: Annotated[str, Field("In the bucket.")] = ""
    cloud_credential_name: Annotated[str, Field("namespace:name of the Secret with accessKey and secretKey.")] = ""
    retention: Annotated[int | None, Field("Number of snapshots to keep in S3.", minimum=0)] = None


class Etcd(Part):
    disable_snapshots: Annotated[bool, Field("Disable scheduled snapshots.")] = False
    snapshot_schedule_cron: Annotated[str, Field("Cron schedule of the snapshots.")] = ""
    snapshot_retention: Annotated[int, Field("Number of snapshots to keep on a node.", minimum=0)] = 0
    s3: Annotated[S3 | None, Field("S3 storage for copies of the snapshots.")] = None


class Networking(Part):
    stack_preference: Annotated[
        str, Field("Loopback address family that probes use.", enum=("", "dual", "ipv4", "ipv6"))
    ] = ""


class DataDirectories(Part):
    """Fixed once the cluster is made."""

    system_agent: Annotated[str, Field("Directory of the node agent; /var/lib/rancher/agent if unset.")] = ""
    provisioning: Annotated[str, Field("Directory for the state of plans; /var/lib/rancher/capr if unset.")] = ""
    k8s_distro: Annotated[
        str, Field("Data directory of the distribution; /var/lib/rancher/<distribution> if unset.")
    ] = ""


class ClusterConfiguration(Part):
    upgrade_strategy: Annotated[UpgradeStrategy, Field("How changes are rolled out to existing nodes.")] = (
        UpgradeStrategy()
    )
    chart_values: Annotated[
        Mapping[str, Any], Field("Values of packaged charts, by chart.", preserve_unknown=True)
    ] = {}
    machine_global_config: Annotated[
        Mapping[str, Any], Field("Content of the distribution's config file on every node.", preserve_unknown=True)
    ] = {}
    machine_selector_config: Annotated[
        Sequence[SelectorConfig],
        Field("Config file content for selected nodes; later entries win.", list_type="atomic"),
    ] = ()
    machine_selector_files: Annotated[
        Sequence[SelectorFiles], Field("Files for selected nodes.", list_type="atomic")
    ] = ()
    additional_manifest: Annotated[str, Field("YAML manifest that the distribution applies to the cluster.")] = ""
    registries: Annotated[Registries | None, Field("Registries that nodes pull images from.")] = None
    etcd: Annotated[Etcd | None, Field("Snapshots of etcd.")] = None
    networking: Annotated[Networking | None, Field("Address settings.")] = None
    data_directories: Annotated[DataDirectories, Field("Directories on nodes.")] = DataDirectories()
    provision_generation: Annotated[
        int, Field("Change this number to make every node apply its plan and restart once.")
    ] = 0


class LocalClusterAuthEndpoint(Part):
    """Not supported yet."""

    enabled: Annotated[bool, Field("Not supported yet.")] = False
    fqdn: Annotated[str, Field("Not supported yet.")] = ""
    ca_certs: Annotated[str, Field("Not supported yet.")] = ""


class SnapshotCreate(Part):
    generation: Annotated[int, Field("Not supported yet.")] = 0


class SnapshotRestore(Part):
    name: Annotated[str, Field("Not supported yet.")] = ""
    generation: Annotated[int, Field("Not supported yet.")] = 0
    restore_rke_config: Annotated[str, Field("Not supported yet.")] = msgspec.field(name="restoreRKEConfig", default="")


class RotateCertificates(Part):
    generation: Annotated[int, Field("Not supported yet.", format="int64")] = 0
    services: Annotated[Sequence[str], Field("Not supported yet.", list_type="atomic")] = ()


class RotateEncryptionKeys(Part):
    generation: Annotated[int, Field("Not supported yet.", format="int64")] = 0


class Operations(ClusterConfiguration):
    """What is asked for once, by a number that changes."""

    etcd_snapshot_create: Annotated[SnapshotCreate | None, Field("Not supported yet.")] = None
    etcd_snapshot_restore: Annotated[SnapshotRestore | None, Field("Not supported yet.")] = None
    rotate_certificates: Annotated[RotateCertificates | None, Field("Not supported yet.")] = None
    rotate_encryption_keys: Annotated[RotateEncryptionKeys | None, Field("Not supported yet.")] = None
