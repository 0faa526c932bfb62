"""The control plane provider: from an RKEControlPlane and its Machines to what each host is to do."""
