"""Hosts of nano that end with their test."""

from tests.lab.nano import nano_hosts

__all__ = ["nano_hosts"]
