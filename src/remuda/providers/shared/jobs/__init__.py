"""Jobs that create and remove servers or the infrastructure of a cluster: their order, objects, program and results."""
