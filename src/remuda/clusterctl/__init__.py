"""What `clusterctl` makes clusters from and installs providers from: a repository, generated from the same types and
drivers as everything else."""
