"""The control plane provider: turns an RKEControlPlane and its Machines into a plan for each host."""
