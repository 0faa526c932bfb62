"""Facts and machinery that several providers use: kinds, names, Secrets, drivers, distributions, and Jobs.

The four providers (`bootstrap`, `controlplane`, `infrastructure`, `machine`) import from here, never from each other.
"""
