"""Provider of RKEClusters: infrastructure that all machines of a cluster share."""
