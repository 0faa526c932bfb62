"""The tunnel beside upstream's: `python -m bench.tunnel`."""
