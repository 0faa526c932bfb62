"""Clusters declared in one resource: `provisioning.cattle.io` Cluster and `<Driver>Config` → everything below them."""
