"""The Kubernetes vocabulary: errors, names, selectors, schemas, patches, quantities, the Client protocol.

Knows nothing of clusters and imports nothing of ours.
"""


class KubeError(Exception):
    """Base class of the exceptions of this package."""
