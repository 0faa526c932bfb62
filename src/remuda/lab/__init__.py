"""Programs that are not for production: for tests, demonstrations and measurements of clusters.

nano/                 a distribution that is outwardly a K3s or an RKE2, and runs no Pods
simulator/            models of servers, workload clusters and etcd, and providers for them
driver_conformance/   the suite that every driver of machines passes
units/                runs units on hosts that are folders, in the place of systemd
"""


class LabError(Exception):
    """Base class of the exceptions of this package."""
