"""The node agent: follows the Machine Plan Secret of its host and reports back through it.

It runs on hosts that have no other part of Remuda: it uses only the standard library of Python 3.9 or newer, and ships
as one zipapp.
"""

PYTHON = (3, 9)  # the oldest it runs on


class AgentError(Exception):
    """Base class of the exceptions of this package."""
