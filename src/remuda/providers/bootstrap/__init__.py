"""RKEBootstrap: how a new server becomes a managed host, and what the manager serves to hosts for that."""
