"""Settings of the manager for the creation of machines."""

from __future__ import annotations

import msgspec

from remuda.capi import inventory
from remuda.jobs.marks import JobKey
from remuda.providers.shared.jobs.budget import Rules


class MachineSettings(msgspec.Struct, frozen=True, kw_only=True):
    run_jobs: bool = True  # Jobs are for our own runner (spec.managedBy); otherwise the cluster runs them
    job_key: JobKey | None = None  # with which Jobs for our own runner are signed: it runs no others
    image: str = ""  # where the cluster runs Jobs: what their container is made of
    image_pull_policy: str = ""
    job_seconds: int = 1800  # a Job that takes longer is ended, and counts as failed
    memory: str = "512Mi"  # the most a Job may use
    cpu: str = ""
    rules: Rules = Rules()
    rancher_machine: str = ""  # where that program is; empty: on the PATH
    driver_directory: str = "~/.cache/remuda/drivers"  # where programs of drivers are kept that were downloaded
    only_here: str = ""  # the URL that hosts are given, if it is one that only this machine can use
    removal_namespace: str = inventory.NAMESPACE  # where Jobs run that remove servers of a namespace being deleted
    in_use_seconds: float = 10.0  # between two looks whether a driver that is to go is still needed

    def out_of_reach(self, driver: str, own_loopback: bool) -> str:
        """Return why hosts of that driver could never reach the manager, as a message; empty if they could."""
        if not own_loopback or not self.only_here:
            return ""
        return out_of_reach(driver, self.only_here)


def out_of_reach(driver: str, url: str) -> str:
    """Return the message about hosts that cannot reach a manager on a loopback address."""
    return (
        f"hosts of driver {driver} cannot reach the manager at {url}, a loopback address: start the manager with "
        "--listen and --server-url set to an address that they can reach"
    )
