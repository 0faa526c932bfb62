"""Image errors. Each message is a sentence for people: it ends up in the plan Secret and in the log."""

from __future__ import annotations

from remuda.agent import AgentError


class ImageError(AgentError):
    """The image could not be staged. The text never holds a credential."""
