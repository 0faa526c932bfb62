"""Workload cluster objects that the Machine controller reads: Nodes, their Pods and the volumes attached to them.

They have only the fields that decide something. Only Nodes are cached: a Machine reads Pods and volumes while it drains
its Node, and at no other time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.kube import conditions
from remuda.kube.objects import Condition, Kind, Object, Part

MIRROR_POD = "kubernetes.io/config.mirror"  # mirror of a static pod: only its kubelet can end it


class Taint(Part):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Part):
    provider_id: str = ""
    unschedulable: bool = False
    taints: Sequence[Taint] = ()


class AttachedVolume(Part):
    name: str = ""


class NodeStatus(Part):
    conditions: Sequence[Condition] = ()
    node_info: Mapping[str, object] = {}
    volumes_attached: Sequence[AttachedVolume] = ()


class Node(Object):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def condition(self, type: str) -> Condition | None:
        return next((found for found in self.status.conditions if found.type == type), None)

    @property
    def ready(self) -> bool:
        return conditions.is_true(self.status.conditions, "Ready")

    @property
    def unreachable(self) -> bool:
        """Return whether the kubelet has been silent for so long that the control plane no longer knows the Node's
        state."""
        ready = self.condition("Ready")
        return ready is not None and ready.status == "Unknown"


class ClaimSource(Part):
    claim_name: str = ""


class Volume(Part):
    name: str = ""
    empty_dir: Mapping[str, object] | None = None
    ephemeral: Mapping[str, object] | None = None
    persistent_volume_claim: ClaimSource | None = None


class PodSpec(Part):
    node_name: str = ""
    volumes: Sequence[Volume] = ()


class PodStatus(Part):
    phase: str = ""


class Pod(Object):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def claims(self) -> list[str]:
        """Return the names of its PersistentVolumeClaims; that of a generic ephemeral volume is made of pod
        and volume.
        """
        direct = [
            volume.persistent_volume_claim.claim_name for volume in self.spec.volumes if volume.persistent_volume_claim
        ]
        return direct + [
            f"{self.metadata.name}-{volume.name}" for volume in self.spec.volumes if volume.ephemeral is not None
        ]


class AttachmentSource(Part):
    persistent_volume_name: str = ""


class AttachmentSpec(Part):
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Object):
    spec: AttachmentSpec = AttachmentSpec()


class ClaimReference(Part):
    namespace: str = ""
    name: str = ""


class CSISource(Part):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Part):
    claim_ref: ClaimReference | None = None
    csi: CSISource | None = None


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class Namespace(Object):
    pass


NODE = Kind("v1", "Node", "nodes", Node, namespaced=False)
POD = Kind("v1", "Pod", "pods", Pod)
NAMESPACE = Kind("v1", "Namespace", "namespaces", Namespace, namespaced=False)
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets", Object)
PERSISTENT_VOLUME = Kind("v1", "PersistentVolume", "persistentvolumes", PersistentVolume, namespaced=False)
VOLUME_ATTACHMENT = Kind(
    "storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", VolumeAttachment, namespaced=False
)
