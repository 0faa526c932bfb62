"""The client for any Kubernetes: `Client` over HTTP, for what a kubeconfig names.

`HttpClient(access)` is all that others use. Importing it imports aiohttp, which the engine alone does not need; whoever
has a use for it imports it where it is used.
"""

from remuda.kube.http.client import HttpClient, resource_path

__all__ = ["HttpClient", "resource_path"]
