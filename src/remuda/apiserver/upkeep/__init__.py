"""Controllers that kube-controller-manager would run for this server.

Each module is one duty, level-triggered and restartable. A duty follows committed changes through a store listener,
queues keys, and repairs one key at a time from the state it reads then. If kube-controller-manager runs against this
server, the server is started without upkeep.
"""
