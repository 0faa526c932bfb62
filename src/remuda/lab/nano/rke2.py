"""Entry point of `python -m remuda.lab.nano.rke2`: nano in RKE2 mode."""

from __future__ import annotations

import sys

from remuda.lab.nano.flavour import RKE2
from remuda.lab.nano.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], RKE2))
