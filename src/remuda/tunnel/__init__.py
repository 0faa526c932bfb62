"""The reverse tunnel: hosts nobody can connect to call the manager, and are reached through that call.

Wire-compatible with rancher/remotedialer. What travels to hosts (protocol, framing, session, client) is the standard
library only, Python 3.9 or newer; the server stands on the HTTP stack of this project. It imports nothing of ours.
"""

# The modules that travel.
TRAVELLING = (
    *("__init__", "__main__", "allow", "client", "dialer", "handshake", "local", "mux", "protocol", "proxies"),
    *("session", "streams", "local_readiness", "websocket", "websocket_client"),
)
