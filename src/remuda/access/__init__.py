"""Access to clusters: authentication, authorization, transports and the proxy.

    request at /k8s/clusters/<id>/… → authenticate and authorize the caller (`authorization`) → transport to the
    cluster, through its tunnel or directly (`transport_pool`) → forward the request, impersonating the caller (`proxy`)

Users, tokens and grants are resources (`types`). Controllers write the resulting RBAC objects on the management plane
and in the cluster. They use the same transports, so that clusters need not accept connections.
"""


class AccessError(Exception):
    """Base class of the exceptions of this package."""
