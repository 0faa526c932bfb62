"""The Cluster controller: joins infrastructure and control plane, sums up everything below, and takes it all down."""
