"""The Cluster controller: connects infrastructure and control plane, summarizes all objects of the cluster, and deletes
them.
"""
