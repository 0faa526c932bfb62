"""deploy/remuda.service on a real host with a real systemd: ready when systemd says so, fenced in, the state kept."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

from tests.lab.hosts import CommandFailed, Host, Network, until
from tests.lab.missing import missing

ROOT = Path(__file__).parents[3]
PYTHON = f"/usr/bin/python3.{sys.version_info.minor}"
# A host has this machine's file system and not its homes, where the Python of the tests may well be; the same libraries
# serve the system's own, if that is the same version.
LAUNCHER = f"""#!/bin/sh
PYTHONPATH=/opt/remuda/src:/opt/remuda/lib exec {PYTHON} -m remuda.cli.main "$@"
"""
KUBECONFIG = "/var/lib/remuda/admin.kubeconfig"
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}}


async def install(network: Network) -> Host:
    if not Path(PYTHON).exists():
        missing(f"the service is run by {PYTHON}, the same version as that of these tests, and it is not here")
    binds = [f"{ROOT / 'src'}:/opt/remuda/src:ro", f"{sysconfig.get_path('purelib')}:/opt/remuda/lib:ro"]
    host = await network.host("ranch", binds=binds)
    await host.run("mkdir -p /opt/remuda/bin /etc/remuda && cat > /opt/remuda/bin/remuda", stdin=LAUNCHER)
    await host.run("chmod 755 /opt/remuda/bin/remuda")
    await host.run("cat > /etc/systemd/system/remuda.service", stdin=(ROOT / "deploy/remuda.service").read_text())
    options = f"REMUDA_OPTIONS=--listen 0.0.0.0:6443 --server-url https://{host.address}:6443\n"
    await host.run("cat > /etc/remuda/remuda.env", stdin=options)
    return host


async def remuda(host: Host, command: str, stdin: str = "") -> str:
    return await host.run(f"/opt/remuda/bin/remuda {command} --kubeconfig {KUBECONFIG}", stdin=stdin)


async def shown(host: Host, name: str) -> str:
    return (await host.run(f"systemctl show -p {name} --value remuda")).strip()


async def test_systemd_unit_starts_sandboxed_and_keeps_state(network: Network) -> None:
    host = await install(network)
    try:
        await host.run("systemctl daemon-reload && systemctl enable --now remuda")  # returns when it is ready
    except CommandFailed as error:
        raise AssertionError(
            f"{error}\n{await host.run('journalctl -u remuda -n 60 --no-pager', check=False)}"
        ) from None
    assert await shown(host, "ActiveState") == "active"
    pid = await shown(host, "MainPID")
    status = await host.run(f"cat /proc/{pid}/status")
    assert "\nCapEff:\t0000000000000000\n" in status
    assert "\nNoNewPrivs:\t1\n" in status
    assert "\nUid:\t0" not in status
    assert (await host.run("stat -L -c %a /var/lib/remuda /var/lib/remuda/admin.kubeconfig")).split() == ["700", "600"]

    await remuda(host, "apply -f -", json.dumps(OBJECT))
    checksum = await host.run("sha256sum < /var/lib/remuda/pki/ca.crt")
    await host.run("systemctl restart remuda")
    assert await shown(host, "MainPID") != pid
    assert "kept" in await remuda(host, "get configmaps -n default")

    pid = await shown(host, "MainPID")
    await host.run(f"kill -9 {pid}")
    await until(host, f"test $(systemctl show -p MainPID --value remuda) != {pid} && systemctl is-active remuda")
    assert "kept" in await remuda(host, "get configmaps -n default")
    assert await host.run("sha256sum < /var/lib/remuda/pki/ca.crt") == checksum

    # A driver's Job is a process of the service: it makes and hears of a host, fences or not; a host that is a process
    # ends with the service, as the unit says.
    await until(host, f"/opt/remuda/bin/remuda get processmachines -A --kubeconfig {KUBECONFIG}")
    await remuda(host, "apply -f -", (ROOT / "examples/machine.yaml").read_text())
    command = f"/opt/remuda/bin/remuda get rkebootstraps -A -o json --kubeconfig {KUBECONFIG}"
    await until(host, f"{command} | grep -A9 AgentConnected | grep True")
    await host.run("systemctl stop remuda")
    assert await shown(host, "Result") == "success"
    assert await host.run("pgrep -fa 'remud[a]' || true") == ""


async def test_service_with_invalid_options_fails_after_limited_retries(network: Network) -> None:
    host = await install(network)
    await host.run("cat > /etc/remuda/remuda.env", stdin="REMUDA_OPTIONS=--listen 0.0.0.0:6443\n")
    done = await host.run("systemctl daemon-reload && systemctl start remuda", check=False)
    assert "Job for remuda.service failed" in done
    await until(host, "systemctl is-failed remuda")  # after five attempts
    assert "add --server-url" in await host.run("journalctl -u remuda --no-pager")
