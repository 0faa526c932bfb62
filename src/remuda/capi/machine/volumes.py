"""Volumes that delay the deletion of a server: attached to its Node, and not by pods that stay on it to the end.

A volume still attached when its server vanishes may be locked for minutes, or damaged. Volumes of pods that the drain
leaves alone never detach, so waiting for them would never end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda.capi.machine.workload import Node, PersistentVolume, Pod, VolumeAttachment

_SHOWN = 3


def attached(node: Node, attachments: Iterable[VolumeAttachment]) -> set[str]:
    """Everything attached, by PersistentVolume where one is known, else as the Node calls it."""
    by_volume = {
        attachment.spec.source.persistent_volume_name or attachment.metadata.name
        for attachment in attachments
        if attachment.spec.node_name == node.metadata.name
    }
    return by_volume | {volume.name for volume in node.status.volumes_attached}


def blocking(found: set[str], staying: Sequence[Pod], volumes: Iterable[PersistentVolume]) -> list[str]:
    """Return the volumes to wait for, sorted; a volume that the Node and an attachment name differently is listed
    once."""
    claims = {(pod.metadata.namespace, claim) for pod in staying for claim in pod.claims}
    left = set(found)
    for volume in volumes:
        claim = volume.spec.claim_ref
        stays = claim is not None and (claim.namespace, claim.name) in claims
        if stays:
            left.discard(volume.metadata.name)
        if stays or volume.metadata.name in left:
            left.discard(name_on_node(volume))
    return sorted(left)


def name_on_node(volume: PersistentVolume) -> str:
    """Return the name under which a Node lists the volume once attached; empty if the volume does not reveal it."""
    csi = volume.spec.csi
    return "" if csi is None else f"kubernetes.io/csi/{csi.driver}^{csi.volume_handle}"


def message(volumes: Sequence[str]) -> str:
    more = f", ... ({len(volumes) - _SHOWN} more)" if len(volumes) > _SHOWN else ""
    noun = "volume is" if len(volumes) == 1 else "volumes are"
    return f"* {len(volumes)} {noun} still attached: {', '.join(volumes[:_SHOWN])}{more}"
