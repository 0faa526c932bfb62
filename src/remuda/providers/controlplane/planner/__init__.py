"""The planner: a pure function from the observed state of a cluster to a decision. It does no I/O."""
