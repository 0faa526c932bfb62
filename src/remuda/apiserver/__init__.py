"""The embedded engine: a Kubernetes API server on SQLite.

From the disk outwards: `storage` keeps bytes and revisions, `registry` adds Kubernetes semantics, `http` serves them.
`schema`, `cel` and `apply` are pure; `kinds` declares the built-in kinds; `auth` authenticates and authorizes; `upkeep`
does the work of kube-controller-manager. `server` joins them. The package knows nothing of provisioning and can be used
separately, together with `remuda.kube`.
"""


class ApiServerError(Exception):
    """Base class of the exceptions of this package."""
