"""`remuda why`: see `describe`."""

from remuda.cli.describe import why as command

__all__ = ["command"]
