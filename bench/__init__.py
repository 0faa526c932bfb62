"""Figures beside a real peer: `python -m bench` (or `make bench`) runs both in one run and prints ratios."""
