"""Drivers of rancher-machine: its unmodified binary is run, and queried for the options of a driver."""
