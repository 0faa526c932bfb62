"""Access to clusters: who may reach which, by which way, and as whom.

    a request at /k8s/clusters/<id>/… → who asks (callers) → may they reach this cluster (reaching) → the way to it
    (ways: through its tunnel, else directly) → the same request there, in the caller's name (proxy)

Users, their tokens and what they were granted are resources (`types`); controllers write what follows from them at both
ends. The way to a cluster is also the controllers' own: they, too, need nothing that accepts connections over there.
"""
