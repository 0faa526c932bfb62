"""What kube-controller-manager would do for this server: each module is one duty, level-triggered and restartable.

A duty follows committed changes through a store listener, queues keys, and repairs one key at a time from what it
reads then. Where upstream's own controllers run against this server, the server is started without upkeep.
"""
