"""Entry point of `python -m remuda.lab.nano`."""

from __future__ import annotations

import sys

from remuda.lab.nano.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
