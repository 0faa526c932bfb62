"""The drivers' conformance suite, which is shipped for the drivers of others: here for ours."""

from remuda.lab.driver_conformance import ClusterConformance, ClusterSubject, Conformance, Subject

__all__ = ["ClusterConformance", "ClusterSubject", "Conformance", "Subject"]
