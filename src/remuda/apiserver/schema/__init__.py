"""Structural schemas: parsed from a CRD, checked, and applied to objects (defaults, pruning, validation)."""
