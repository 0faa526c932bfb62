"""Controllers of the simulated provider, one file per kind: the provider side of every contract of Cluster API.

They show how a provider should work: wait for the owner, leave paused objects alone, add a finalizer before creating
anything outside, never reset a reported fact, and write only changes.
"""
