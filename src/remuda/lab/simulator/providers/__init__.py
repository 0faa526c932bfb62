"""The simulated provider's controllers, one file per kind: the other side of every hand-off of Cluster API.

They are written as a provider should be: wait for the owner, leave paused objects alone, hold a finalizer before
anything outside is made, never take a reported fact back, and write only what has changed.
"""
