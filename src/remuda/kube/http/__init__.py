"""HTTP client for any Kubernetes that a kubeconfig names.

Other packages use only `HttpClient(access)`. Importing it imports aiohttp, which the engine alone does not need, so
import it where it is used.
"""

from remuda.kube.http.client import HttpClient, resource_path

__all__ = ["HttpClient", "resource_path"]
