"""MachineHealthCheck: finds unhealthy Machines and requests their remediation."""
