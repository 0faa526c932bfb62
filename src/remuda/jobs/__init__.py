"""Job runner: runs `batch/v1` Jobs as child processes where the engine has no nodes.

It runs only Jobs that name it in `spec.managedBy`; kube-controller-manager ignores these.
"""

MANAGED_BY = "remuda.dev/job-runner"
COMMAND = ("remuda", "machine-job")  # the only command that is run

# Annotation of a Job: namespace/name of another one. Nothing is started while a program of that Job still runs.
FOLLOWS = "remuda.dev/follows-job"

# What a program finds in its environment when it runs here rather than in a container.
ROOT_VARIABLE = (
    "REMUDA_JOB_ROOT"  # stands before every mount path of the Job's volumes, and before /dev/termination-log
)
DIRECTORY_VARIABLE = "REMUDA_JOB_DIRECTORY"  # where drivers whose servers live on this machine keep them
TERMINATION_LOG = "/dev/termination-log"


class JobRunnerError(Exception):
    """Base class of the exceptions of this package."""
