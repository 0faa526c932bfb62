"""Hostile input to tunnels."""
