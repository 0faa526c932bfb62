"""Structural schemas: read from a CRD, checked, and applied to objects as defaults, pruning and validation."""
