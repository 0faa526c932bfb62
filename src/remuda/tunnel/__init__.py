"""Reverse tunnel: a host that accepts no connections connects to the manager, which then reaches it through the tunnel.

Wire-compatible with rancher/remotedialer. The modules that are shipped to hosts (protocol, framing, session, client)
use only the standard library of Python 3.9 or newer. The package imports no other package of this project.
"""

# The modules that are shipped to hosts with the agent.
TRAVELLING = (
    *("__init__", "__main__", "allow", "client", "dialer", "handshake", "local", "mux", "protocol", "proxies"),
    *("session", "streams", "local_readiness", "websocket", "websocket_client"),
)


class TunnelError(Exception):
    """Base class of the exceptions of this package."""
