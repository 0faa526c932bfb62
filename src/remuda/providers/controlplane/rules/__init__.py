"""Rules for the spec of a cluster: which fields have an effect, which versions may follow each other, what a
configuration may contain. Shared by the admission of RKEControlPlanes and of the Clusters they are created from. Pure.
"""
