"""The manager's end as a program of its own: the embedded engine with the proxy and the tunnel's endpoint on it.

    python -m bench.proxy.server --data-dir DIR --cluster KUBECONFIG --user NAME

Two clusters lead to the same API server: `direct` by its kubeconfig, `tunnel` through whatever tunnel comes for it. The
token of the only caller is his name. Prints one line of JSON (url, ca) once it listens, and audits as usual.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from tests.lab.proxied import proxied

from remuda.app import process


async def serve(stop: asyncio.Event, folder: Path, config: dict[str, Any], user: str) -> int:
    address = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
    async with proxied(folder, api=address) as place:
        place.caller(user)
        await place.cluster("direct", config)
        await place.cluster("tunnel", config)
        (folder / "front.pem").write_bytes(place.engine.pki.ca_certificate_pem)
        print(json.dumps({"url": place.engine.url, "ca": str(folder / "front.pem")}), flush=True)
        await stop.wait()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cluster", type=Path, required=True)
    parser.add_argument("--user", required=True)
    chosen = parser.parse_args()
    config = yaml.safe_load(chosen.cluster.read_text())
    return process.run("proxy bench", lambda stop: serve(stop, chosen.data_dir, config, chosen.user))


if __name__ == "__main__":
    sys.exit(main())
