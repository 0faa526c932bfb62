"""Admission functions as webhooks, for a Kubernetes that is not ours.

The same pure functions that the embedded engine calls in process (`kube.admission`) are served over HTTPS and
registered with the API server, one mutating and one validating webhook per kind. Everything needed for that is
self-managed: the CA and the serving certificate live in a Secret that all replicas share. `webhooks.service` imports an
HTTP server, which the embedded engine does not need.
"""

from remuda.runtime.webhooks.configuration import Location, unregister
from remuda.runtime.webhooks.review import Webhook, join, lookup_in, select_in

__all__ = ["Location", "Webhook", "join", "lookup_in", "select_in", "unregister"]
