"""Shows what a server answers: python -m tests.interop.semantics KUBECONFIG [PART OF A CASE'S NAME ...]"""

from __future__ import annotations

import json
import secrets
import sys
import time
from pathlib import Path

from tests.interop.semantics import areas
from tests.interop.semantics.trial import CASES, Lab
from tests.lab import Server


def main() -> None:
    areas.load()
    lab = Lab(Server(Path(sys.argv[1])), "".join(secrets.choice("bcdfghjklmnpqrstvwxz") for _ in range(5)))
    wanted = sys.argv[2:]
    for one in CASES.values():
        if not wanted or any(part in one.id for part in wanted):
            started = time.monotonic()
            transcript = lab.observe(one)
            print(f"== {one.id}  ({time.monotonic() - started:.2f} s)")
            for entry in transcript:
                print(json.dumps(entry, ensure_ascii=False))


if __name__ == "__main__":
    main()
