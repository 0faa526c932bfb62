"""RKECluster: what the machines of a cluster share, which is next to nothing."""
