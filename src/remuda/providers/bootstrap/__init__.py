"""RKEBootstrap: turns a new server into a managed host, and serves hosts the endpoints for that."""
