"""Drain requests: the handshake by which the planner has a node drained before it restarts, if the user wants that.

The request is the drain options as JSON; the answer repeats it byte for byte. The uncordon request repeats it too, when
the host is healthy again.
"""

from __future__ import annotations

import msgspec

from remuda.providers.controlplane.planner.observation import Host, Roles
from remuda.providers.shared.types.configuration import DrainOptions, UpgradeStrategy


def options_for(strategy: UpgradeStrategy, roles: Roles) -> DrainOptions:
    return strategy.control_plane_drain_options if roles.server else strategy.worker_drain_options


def request(options: DrainOptions) -> str:
    """Return the request: sorted keys, no spaces, and zero values for unset fields that are always present."""
    written: dict[str, object] = {
        "deleteEmptyDirData": options.delete_empty_dir_data,
        "disableEviction": options.disable_eviction,
        "enabled": options.enabled,
        "force": options.force,
        "gracePeriod": options.grace_period,
        "skipWaitForDeleteTimeoutSeconds": options.skip_wait_for_delete_timeout_seconds,
        "timeout": options.timeout,
    }
    if options.ignore_daemon_sets is not None:
        written["ignoreDaemonSets"] = options.ignore_daemon_sets
    if options.ignore_errors:
        written["ignoreErrors"] = True
    for name, hooks in (("preDrainHooks", options.pre_drain_hooks), ("postDrainHooks", options.post_drain_hooks)):
        if hooks:
            written[name] = [{"annotation": hook.annotation} for hook in hooks]
    return msgspec.json.encode(written, order="sorted").decode()


def is_wanted(options: DrainOptions) -> bool:
    return options.enabled or bool(options.pre_drain_hooks) or bool(options.post_drain_hooks)


def is_over(host: Host) -> bool:
    return bool(host.drain.requested) and host.drain.done == host.drain.requested
