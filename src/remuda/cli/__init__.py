"""The `remuda` command."""
