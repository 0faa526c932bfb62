"""RKECluster: what a whole cluster stands on before its first machine is made."""
