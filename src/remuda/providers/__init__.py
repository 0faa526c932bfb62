"""The other side of Cluster API's hand-offs: cluster infrastructure, bootstrap, machines, control plane."""
