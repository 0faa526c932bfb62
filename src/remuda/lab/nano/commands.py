"""Small commands: bootstrap tokens, validity of certificates, and the scripts of an installation."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import os
import re
import secrets
import shutil
import string
from importlib import resources
from pathlib import Path
from typing import Any

from cryptography import x509

from remuda.kube import clock
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import KubeconfigError, load
from remuda.lab.nano import serving_certificates
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.flavour import Flavour
from remuda.lab.nano.host import this_host
from remuda.lab.nano.layout import NanoLayout, write_file
from remuda.lab.nano.passwords import NAMESPACE, SECRETS

_PREFIX = "bootstrap-token-"
_LETTERS = string.ascii_lowercase + string.digits
_TIME = re.compile(r"(\d+)([smh])")


# ---- bootstrap tokens --------------------------------------------------------------------------------------------


def token(flavour: Flavour, arguments: list[str]) -> int:
    action, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if action == "generate":
        print(_new_token())
        return 0
    if action == "create":
        options = _options(rest, ("ttl", "description"))
        return asyncio.run(_create(flavour, options.get("ttl", "24h"), options.get("description", "")))
    if action == "list":
        return asyncio.run(_list(flavour))
    if action == "delete" and rest:
        return asyncio.run(_delete(flavour, rest))
    raise FatalError("token generate, create, list or delete ID")


def _new_token() -> str:
    return (
        "".join(secrets.choice(_LETTERS) for _ in range(6)) + "." + "".join(secrets.choice(_LETTERS) for _ in range(16))
    )


async def _create(flavour: Flavour, ttl: str, description: str) -> int:
    found = _TIME.fullmatch(ttl)
    if found is None:
        raise FatalError(f"--ttl {ttl}: expected a duration such as 24h, 30m or 90s")
    seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
    made = _new_token()
    identifier, secret = made.split(".")
    data = {
        "token-id": identifier,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": f"system:bootstrappers:{flavour.name}:default-node-token",
        "description": description,
        "expiration": clock.rfc3339(clock.time() + seconds),
    }
    obj = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": _PREFIX + identifier, "namespace": NAMESPACE},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items() if value},
    }

    async def create(client: HttpClient) -> int:
        await client.create(SECRETS, NAMESPACE, obj)
        print(made)
        return 0

    return await _with_client(flavour, create)


async def _list(flavour: Flavour) -> int:
    async def show(client: HttpClient) -> int:
        for item in (await client.list(SECRETS, NAMESPACE, field_selector="type=bootstrap.kubernetes.io/token")).items:
            data = {key: base64.b64decode(value).decode() for key, value in json.loads(item).get("data", {}).items()}
            print(f"{data.get('token-id', '')}\t{data.get('expiration', '<never>')}\t{data.get('description', '')}")
        return 0

    return await _with_client(flavour, show)


async def _delete(flavour: Flavour, identifiers: list[str]) -> int:
    async def delete(client: HttpClient) -> int:
        for identifier in identifiers:
            await client.delete(SECRETS, NAMESPACE, _PREFIX + identifier.partition(".")[0])
        return 0

    return await _with_client(flavour, delete)


async def _with_client(flavour: Flavour, work: Any) -> int:
    path = Path(os.environ.get("KUBECONFIG") or this_host().path(flavour.kubeconfig))
    try:
        client = HttpClient(load(path), field_manager="nano")
    except (KubeconfigError, OSError) as error:
        raise FatalError(f"{error}") from None
    try:
        return int(await work(client))
    except StatusError as error:
        raise FatalError(str(error)) from None
    finally:
        await client.close()


# ---- certificates ------------------------------------------------------------------------------------------------


def certificate(flavour: Flavour, arguments: list[str]) -> int:
    action, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    options = _options(rest, ("data-dir", "output"))
    layout = NanoLayout(this_host().path(options.get("data-dir", flavour.data_dir)), flavour)
    if action == "check":
        return _check(layout, as_json=options.get("output") == "json")
    if action == "rotate":
        return _rotate(layout)
    raise FatalError("certificate check [--output json], or certificate rotate")


def _check(layout: NanoLayout, *, as_json: bool) -> int:
    now = datetime.datetime.now(datetime.UTC)
    rows = []
    for path in sorted([*layout.tls.rglob("*.crt"), *layout.agent.glob("*.crt")]):
        found = x509.load_pem_x509_certificate(path.read_bytes())
        ends = found.not_valid_after_utc
        state = "EXPIRED" if ends <= now else "WARNING" if ends - now < serving_certificates.RENEW_BEFORE else "OK"
        rows.append(
            {"file": str(path), "subject": found.subject.rfc4514_string(), "expires": ends.isoformat(), "status": state}
        )
    if as_json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['status']}\t{row['expires']}\t{row['file']}\t{row['subject']}")
    return 0


def _rotate(layout: NanoLayout) -> int:
    """Rotate certificates, after copying everything to a backup folder, as K3s does. Authorities stay."""
    if not layout.tls.is_dir():
        raise FatalError(f"{layout.tls} does not exist: this host is not a server")
    kept = layout.server / f"tls-{int(clock.time())}"
    shutil.copytree(layout.tls, kept)
    folders = ("", "etcd", "kube-controller-manager", "kube-scheduler")
    for path in [path for folder in folders for path in (layout.tls / folder).glob("*.*")]:
        if path.suffix in (".crt", ".key") and not path.stem.endswith("-ca") and not path.stem.startswith("service"):
            path.unlink()
    print(f"moved the certificates to {kept}; start {layout.flavour.name} to create new ones")
    return 0


# ---- scripts -----------------------------------------------------------------------------------------------------


def scripts(flavour: Flavour, arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise FatalError("scripts DIRECTORY")
    folder = Path(arguments[0])
    for source in (resources.files("remuda.lab.nano") / "scripts").iterdir():
        if source.name.startswith(f"{flavour.name}-"):
            write_file(folder / source.name, source.read_bytes(), 0o755)
    return 0


def _options(arguments: list[str], known: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        name, has_value, value = flag.lstrip("-").partition("=")
        if not flag.startswith("--") or name not in known or (not has_value and not rest):
            raise FatalError(f"flag provided but not defined: {flag}")
        found[name] = value if has_value else rest.pop(0)
    return found
