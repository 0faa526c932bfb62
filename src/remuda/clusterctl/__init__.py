"""Repository for `clusterctl`, from which it generates clusters and installs providers. It is built from the same types
and drivers as everything else."""
