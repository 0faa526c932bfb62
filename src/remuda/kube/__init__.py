"""The Kubernetes vocabulary: errors, names, selectors, schemas, patches, quantities, the Client protocol.

It knows nothing of clusters and imports no other package of Remuda.
"""


class KubeError(Exception):
    """Base class of the exceptions of this package."""
