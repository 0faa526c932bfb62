"""`python -m bench`: every group of budgets, or with `--only` some measures of them.

The exit code is 0 unless something broke: a missed budget is a result, which the table states.
"""

from __future__ import annotations

import argparse
import sys

from bench import apiserver
from bench.report import Broken, Effort


def main() -> int:
    names = apiserver.names()
    parser = argparse.ArgumentParser(prog="python -m bench", description="Figures beside a real peer, in one run.")
    parser.add_argument("--quick", action="store_true", help="one short round of each instead of the median of five")
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help=f"one of {', '.join(names)}")
    parser.add_argument("--ours-alone", action="store_true", help="no peer, no ratios: for work on our side")
    chosen = parser.parse_args()
    effort = Effort(rounds=1, seconds=2) if chosen.quick else Effort(rounds=5, seconds=3)
    try:
        print(apiserver.run(chosen.only or names, effort, with_peer=not chosen.ours_alone))
    except Broken as broken:
        print(f"bench: {broken}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
