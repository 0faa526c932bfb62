"""Pods are moved away before a node is restarted, where the user wants that: a handshake with whoever drains.

The request is the options themselves, to the byte; the answer repeats it. What was drained is uncordoned with the same
words when the host is well again.
"""

from __future__ import annotations

import msgspec

from remuda.providers.controlplane.planner.observation import Host, Roles
from remuda.providers.shared.types.configuration import DrainOptions, UpgradeStrategy


def options_for(strategy: UpgradeStrategy, roles: Roles) -> DrainOptions:
    return strategy.control_plane_drain_options if roles.server else strategy.worker_drain_options


def request(options: DrainOptions) -> str:
    """Keys sorted, no spaces, and what is not set but always there as zero."""
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
