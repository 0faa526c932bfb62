"""Tunnels between our ends and upstream's, in every pairing."""
