"""Which suite kills at which step: every step of the product is in exactly one place here, or test_register.py fails.

A suite asks for its points here, so that a step which is declared tomorrow is killed at tomorrow. The drivers' own
suites kill at every point that is passed (`*@1`, `*@2`, …), whatever it is called.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import remuda
from remuda.runtime.steps import Step, all_steps

_CORE = "tests/faults/controllers/test_crash_points.py"
_MACHINES = "tests/faults/machines/test_crash_points.py"
_HOSTS = "tests/faults/hosts/test_crash_points.py"
_DECLARED = "tests/faults/declared/test_crash_points.py"
_CONTROL_PLANE = "tests/faults/controllers/test_control_plane_points.py"
_JOBS = "tests/faults/providers/test_job_points.py"
_INFRASTRUCTURE = "tests/faults/providers/test_infrastructure_points.py"
_ACCESS = "tests/faults/access/test_crash_points.py"
_CORNERS = "tests/faults/providers/test_corner_points.py"

# By the longest beginning of a step's name.
PLACES = {
    **dict.fromkeys(("cluster.", "machine.", "machinedeployment.", "machineset.", "machinehealthcheck."), _CORE),
    **dict.fromkeys(("definitions.", "inventory.", "template.", "election.", "webhooks."), _CORE),
    **dict.fromkeys(("provisioningcluster.", "managementcluster."), _DECLARED),
    **dict.fromkeys(("drivermachine.", "nodedriver.", "jobrunner."), _MACHINES),
    **dict.fromkeys(("rkebootstrap.", "registration.", "clusterregistration.", "custommachine."), _HOSTS),
    **dict.fromkeys(("rkecontrolplane.", "rkedrain."), _CONTROL_PLANE),
    **dict.fromkeys(("machinejob.", "simdriver.", "processdriver.", "existingdriver."), _JOBS),
    **dict.fromkeys(("jobrunner.delete-job", "jobrunner.delete-pod"), _CORNERS),
    **dict.fromkeys(("rkebootstrap.renew-data", "clusterregistration.renew-command"), _CORNERS),
    **dict.fromkeys(("rkecluster.", "clusterjob."), _INFRASTRUCTURE),
    **dict.fromkeys(("grant.", "token.", "clusterkubeconfig.", "systemuser.", "access."), _ACCESS),
    # No driver of ours has anything to remember of a cluster; its suite saves through a file.
    **dict.fromkeys(
        ("clusterjob.save-record", "clusterjob.save-private-key"), "tests/controllers/test_infrastructure.py"
    ),
    "machinejob.save-private-key": "tests/controllers/test_machine_job.py",  # of drivers that need a cloud
    **dict.fromkeys(("balancer.", "processcluster."), "tests/unit/providers/machine/drivers/test_process_cluster.py"),
    # A member of etcd whose Machine is gone for good.
    "rkecontrolplane.expel-member": "tests/controllers/test_controlplane_troubles.py",
    "rkecontrolplane.forget-node": "tests/controllers/test_controlplane_troubles.py",  # the same, of a Node
    # Somebody has to delete an authority of a cluster that runs; a second try finds it missing again.
    "rkecontrolplane.restore-authority": "tests/controllers/test_controlplane_troubles.py",
    # Only a cluster from before there were tunnels comes to it.
    "rkecontrolplane.add-tunnel-key": "tests/controllers/test_controlplane_troubles.py",
    # These need root, or a cloud.
    "nspawn.": "tests/e2e/hosts/test_driver.py",
    "amazonec2.": "tests/e2e/test_amazonec2.py",
    # Not of the product: the simulation's, and the drivers' suite's own.
    "simulated": "tests/faults/controllers/test_random_kills.py",
    "conformance.": "tests/unit/lab/driver_conformance",
    # A host has to vanish for it; a second try finds the same Machine overdue.
    "provisioningcluster.delete-missing": "tests/controllers/test_provisioning.py",
    # Only ten minutes bring it about; a request that is not deleted is a Secret too many until the next look.
    "clusterregistration.forget": "tests/controllers/test_bootstrap_custom.py",
}


@cache
def steps() -> list[Step]:
    """Of the whole product, whatever a program of it would import."""
    for module in pkgutil.walk_packages(remuda.__path__, "remuda."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [step for step in all_steps() if not step.name.startswith("test")]


def place(step: Step) -> str:
    found = [beginning for beginning in PLACES if step.name.startswith(beginning)]
    return PLACES[max(found, key=len)] if found else ""


def points(suite: str) -> set[str]:
    return {point for step in steps() if place(step) == suite for point in (step.before, step.after)}
