"""How the API server answers while the tunnel beside it, in the same process, is busy."""

from __future__ import annotations

import base64
import http.client
import ssl
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from bench.report import Broken

_PATH = "/api/v1/namespaces/default"


class Api:
    """One user with one connection, who asks again as soon as there is an answer."""

    def __init__(self, kubeconfig: Path) -> None:
        found = yaml.safe_load(kubeconfig.read_text())
        cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]) + b"\n")
            pair.flush()
            context.load_cert_chain(pair.name)
        address = urlsplit(cluster["server"])
        self._connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=context, timeout=60)

    def latencies(self, seconds: float) -> list[float]:
        """Milliseconds of each get."""
        found = []
        until = time.perf_counter() + seconds
        while (started := time.perf_counter()) < until:
            self._connection.request("GET", _PATH)
            answer = self._connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise Broken(f"the API server answered {answer.status}")
            found.append((time.perf_counter() - started) * 1000)
        return found
