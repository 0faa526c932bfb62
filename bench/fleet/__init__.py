"""A fleet of simulated clusters on the embedded engine: how long until all are Available, and what each costs.

python -m bench.fleet                      100, 300 and 1,000 clusters of 3 machines
python -m bench.fleet --clusters 50 --profile fleet.prof
"""
