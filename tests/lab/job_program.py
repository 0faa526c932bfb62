"""Stands for `remuda` in Jobs of tests: does what the words in a mounted file say, or its arguments.

say TEXT | sleep SECONDS | exit CODE | flood MEGABYTES | line BYTES | spawn SECONDS | stubborn | last-words TEXT
show-env NAME | show-file PATH | read-secret NAME | wait-for PATH | touch PATH
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    given = sys.argv[1:]
    words = iter(json.loads(below("/run/words/words.json").read_text()) if given == ["machine-job"] else given)
    for word in words:
        match word:
            case "say":
                print(next(words), flush=True)
            case "sleep":
                time.sleep(float(next(words)))
            case "exit":
                sys.exit(int(next(words)))
            case "flood":
                flood(int(next(words)))
            case "line":
                print("x" * int(next(words)), flush=True)
            case "spawn":
                child = subprocess.Popen(["sleep", next(words)])
                print(f"spawned {child.pid}", flush=True)
            case "stubborn":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case "pid":
                print(f"pid {os.getpid()}", flush=True)
            case "last-words":
                below("/dev/termination-log").write_text(next(words))
            case "show-env":
                name = next(words)
                print(f"{name}={os.environ.get(name)}", flush=True)
            case "show-file":
                path = below(next(words))
                print(f"{path.stat().st_mode & 0o777:o} {path.read_text()}", flush=True)
            case "read-secret":
                asyncio.run(read_secret(next(words)))
            case "wait-for":
                path = Path(next(words))
                while not path.exists():
                    time.sleep(0.02)
            case "touch":
                Path(next(words)).touch()
            case _:
                sys.exit(f"what is {word}?")


def below(path: str) -> Path:
    return Path(os.environ["REMUDA_JOB_ROOT"] + path)


def flood(megabytes: int) -> None:
    line = "y" * 99 + "\n"
    for _ in range(megabytes):
        sys.stdout.write(line * 10_000)
    sys.stdout.flush()


async def read_secret(name: str) -> None:
    from remuda.kube import kubeconfig
    from remuda.kube.core import SECRETS
    from remuda.kube.errors import StatusError
    from remuda.kube.http import HttpClient

    access = kubeconfig.load()
    client = HttpClient(access)
    try:
        await client.get(SECRETS, access.namespace, name)
        print(f"read {name}", flush=True)
    except StatusError as error:
        print(f"{error.code} {error.reason}", flush=True)
    finally:
        await client.close()


if __name__ == "__main__":
    main()
