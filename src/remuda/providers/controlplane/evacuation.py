"""Choose the Pods to evict before a node is restarted, and report what forbids it: kubectl's rules, by a cluster's
options. Pure.

Pods are classified (of a DaemonSet, static, to be left alone by its label) as for the deletion of a Machine
(`capi.machine.drain_rules`). If one Pod may not be evicted, no Pod is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from remuda.capi.machine import drain_rules
from remuda.capi.machine.drain_rules import Surroundings, listed
from remuda.capi.machine.workload import Pod
from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.providers.shared.types.configuration import DrainOptions


class Evacuation(NamedTuple):
    evict: Sequence[Pod] = ()
    leaving: Sequence[Pod] = ()  # waited for
    forbidden: str = ""  # why nobody is asked to leave

    @property
    def finished(self) -> bool:
        return not (self.evict or self.leaving or self.forbidden)


def plan(
    pods: Sequence[Pod], options: DrainOptions, daemon_sets: Collection[Key], *, now: float, unreachable: bool
) -> Evacuation:
    around = Surroundings(now, unreachable, daemon_sets, namespace_labels={}, rules=())
    found = drain_rules.plan(pods, around)
    evict = [*found.evict, *found.evict_later]
    leaving = [
        pod for pod in (*found.leaving, *found.complete, *found.complete_later) if not _given_up(pod, options, now)
    ]
    return Evacuation(evict, leaving, _forbidden(found.stay, evict, options, daemon_sets))


def _forbidden(stay: Sequence[Pod], evict: Sequence[Pod], options: DrainOptions, daemon_sets: Collection[Key]) -> str:
    running = [pod for pod in evict if not pod.finished]
    reasons = []
    if options.ignore_daemon_sets is False:
        of_sets = [pod for pod in stay if drain_rules.daemon_set_of(pod) in daemon_sets]
        if of_sets:
            reasons.append(f"{listed(of_sets)} belong to DaemonSets, and ignoreDaemonSets is false")
    lonely = [pod for pod in running if pod.metadata.controller is None]
    if lonely and not options.force:
        reasons.append(f"{listed(lonely)} would not be made again by anybody, and force is not set")
    local = [pod for pod in running if any(volume.empty_dir is not None for volume in pod.spec.volumes)]
    if local and not options.delete_empty_dir_data:
        reasons.append(f"{listed(local)} would lose what is in emptyDir volumes, and deleteEmptyDirData is not set")
    return "; ".join(reasons)


def _given_up(pod: Pod, options: DrainOptions, now: float) -> bool:
    """Return whether the Pod has been terminating for longer than the options allow to wait."""
    limit, deleted = options.skip_wait_for_delete_timeout_seconds, pod.metadata.deletion_timestamp
    return bool(limit and deleted is not None and now - clock.parse(deleted) > limit)
