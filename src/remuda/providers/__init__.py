"""The other side of Cluster API's hand-offs: cluster infrastructure, bootstrap, machines, control plane."""


class ProviderError(Exception):
    """Base class of the exceptions of this package."""
