"""Cluster API: its kinds, the contract with providers, and the controllers at its core."""


class CapiError(Exception):
    """Base class of the exceptions of this package."""
