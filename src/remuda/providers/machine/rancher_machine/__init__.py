"""Drivers of rancher-machine, used as they are: its binary is run unmodified, and asked what options a driver has."""
