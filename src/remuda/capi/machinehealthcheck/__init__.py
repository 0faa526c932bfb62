"""MachineHealthCheck: finds unhealthy Machines and hands them to whoever replaces or repairs them."""
