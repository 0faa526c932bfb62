"""Framework of the controllers: caches, queues, the reconcile loop, leader election, events and metrics.

Everything here uses a `kube.client.Client`, and works the same on every engine behind it.
"""


class ControllerRuntimeError(Exception):
    """Base class of the exceptions of this package."""
