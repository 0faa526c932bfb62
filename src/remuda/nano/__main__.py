"""`python -m remuda.nano`."""

from __future__ import annotations

import sys

from remuda.nano.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
