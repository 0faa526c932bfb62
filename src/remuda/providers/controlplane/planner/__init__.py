"""The planner: a pure function from what is known of a cluster to what is to be done about it. It does no I/O."""
