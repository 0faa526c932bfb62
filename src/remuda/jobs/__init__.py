"""Job runner: runs `batch/v1` Jobs as child processes where the engine has no nodes.

It runs only Jobs that name it in `spec.managedBy`; kube-controller-manager ignores these.
"""

MANAGED_BY = "remuda.dev/job-runner"
COMMAND = ("remuda", "machine-job")  # the only command that is run

# Annotation of a Job: namespace/name of another Job. No program is started while one of that Job runs.
FOLLOWS = "remuda.dev/follows-job"

# Environment of a program that runs here instead of in a container.
ROOT_VARIABLE = "REMUDA_JOB_ROOT"  # prefix of every mount path of the Job's volumes, and of /dev/termination-log
DIRECTORY_VARIABLE = "REMUDA_JOB_DIRECTORY"  # directory of the servers of drivers that create them on this machine
TERMINATION_LOG = "/dev/termination-log"


class JobRunnerError(Exception):
    """Base class of the exceptions of this package."""
