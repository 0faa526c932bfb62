"""Ours beside the real programs."""
