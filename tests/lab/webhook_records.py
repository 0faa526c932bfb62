"""`remuda apiserver` with one setting that has no flag: webhook configurations are stored.

The embedded engine calls no webhooks, so it refuses their configurations. What writes such configurations (`remuda
manager --webhook-listen`, Go clients with every kind) is killed, or compared, on this program.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from remuda.app import apiserver


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["apiserver"])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--listen", required=True)
    given = parser.parse_args()
    host, _, port = given.listen.rpartition(":")
    return apiserver.run(
        apiserver.ServerSettings(data_dir=given.data_dir, host=host, port=int(port), webhook_records=True)
    )


if __name__ == "__main__":
    sys.exit(main())
