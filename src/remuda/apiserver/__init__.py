"""The embedded engine: a Kubernetes API server on SQLite.

From the disk outwards: `storage` keeps bytes and revisions, `registry` gives them Kubernetes semantics,
`http` puts them on the wire. `schema`, `cel` and `apply` are pure; `kinds` declares the built-in kinds;
`auth` says who may do what; `upkeep` is what kube-controller-manager would do. `server` joins them.
It knows nothing of provisioning and can be lifted out together with `remuda.kube`.
"""


class ApiServerError(Exception):
    """Base class of the exceptions of this package."""
