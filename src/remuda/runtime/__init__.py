"""Controllers' machinery: caches, queues, the reconcile loop, and what every controller shares.

Everything here speaks to a `kube.client.Client` and cannot tell which engine is behind it.
"""
