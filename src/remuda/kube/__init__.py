"""The Kubernetes vocabulary: errors, names, selectors, schemas, patches, quantities, the Client protocol.

Knows nothing of clusters and imports nothing of ours.
"""
