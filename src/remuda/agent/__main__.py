"""`remuda-agent`: run, install, uninstall, supervise, version."""

from __future__ import annotations

import sys


def main() -> int:
    raise NotImplementedError


if __name__ == "__main__":
    sys.exit(main())
