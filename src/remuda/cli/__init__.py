"""The `remuda` command."""


class CliError(Exception):
    """Base class of the exceptions of this package."""
