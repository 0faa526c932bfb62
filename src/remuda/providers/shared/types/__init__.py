"""The kinds of the four providers, which read each other's objects."""
