"""`remuda resume`: see `pause`."""

from remuda.cli.pause import resume as command

__all__ = ["command"]
