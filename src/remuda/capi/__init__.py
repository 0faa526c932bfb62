"""Cluster API: its kinds, the contract with providers, and the controllers at its core."""
