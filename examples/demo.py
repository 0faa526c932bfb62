"""The demo (`make demo`): creates a cluster of three machines from nothing and changes it in place, with the commands
that a user would type. Each command is printed before it runs, so that you can repeat the demo by hand.

All files are in ./remuda-demo. DEMO_EXIT=1, Ctrl-C and `make demo-clean` stop the demo and delete the cluster first, so
that no machines are left. The demo needs only the standard library.

    DEMO_EXIT=1         clean up at the end, instead of leaving everything running
    DEMO_DRIVER=process driver of the machines; default: nspawn for root on a machine that has it, else process
    DEMO_DISTRO=k3s     real k3s on nspawn hosts, instead of nano; DEMO_K3S=FILE names its binary
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ground import Impossible, K3s, choose
from with_progress import lines

FOLDER = Path("remuda-demo")
LOG = FOLDER / "log" / "up.log"
ADMIN, INSIDE, FILE = FOLDER / "admin.kubeconfig", FOLDER / "prairie.kubeconfig", FOLDER / "prairie.yaml"
REMUDA = Path(sys.executable).with_name("remuda")
CLUSTER, NAMESPACE = "prairie", "fleet-default"
K3S_EXAMPLE, K3S_EXAMPLE_CLUSTER = Path(__file__).with_name("k3s-nspawn.yaml"), "pampas"

_LABEL_SECONDS = 60
_QUIET_SECONDS = 4.0
_TERMINAL = sys.stdout.isatty()
BOLD, DIM, GREEN, RED, PLAIN = (
    ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m") if _TERMINAL else ("", "", "", "", "")
)


class Failed(Exception):
    """The demo cannot continue; the text says why."""


class OthersUse(Failed):
    """The management plane of the demo has clusters that the demo did not create."""


# ---- output ----------------------------------------------------------------------------------------------------------


def say(text: str = "") -> None:
    print(text, flush=True)


def title(text: str) -> None:
    say(f"\n{BOLD}{text}{PLAIN}")


def type_(command: str) -> None:
    """Print a command, wrapped as on a terminal of 80 columns."""
    lines = textwrap.wrap(command, 74, break_long_words=False, break_on_hyphens=False)
    say(f"{DIM}${PLAIN} {BOLD}" + " \\\n    ".join(lines) + PLAIN)


def show(text: str) -> None:
    say(f"{GREEN}✓{PLAIN} {text}")


# ---- commands --------------------------------------------------------------------------------------------------------


def remuda(*words: str, into: Path | None = None, kubeconfig: Path = ADMIN) -> None:
    """Print a command, and run it with its output."""
    shown = shlex.join(("remuda", *words)) + (f" > {into}" if into else "")
    type_(shown)
    if into:
        into.write_text(ask(*words, kubeconfig=kubeconfig))
        return
    environment = _environment(kubeconfig)
    if _TERMINAL:  # the command itself shows the elapsed time there
        code = subprocess.run([REMUDA, *words], env=environment, check=False).returncode
    else:
        code = _run_with_clock(words, environment)
    if code:
        raise Failed(f"`{shown}` failed with exit code {code}")


def _run_with_clock(words: Sequence[str], environment: dict[str, str]) -> int:
    """Print the elapsed time whenever the command is silent."""
    began = time.monotonic()
    command = [str(REMUDA), *words]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in lines(process, _QUIET_SECONDS):
            print(f"{time.monotonic() - began:5.0f}s  …\n" if line is None else line, end="", flush=True)
    return process.returncode


def ask(*words: str, kubeconfig: Path = ADMIN) -> str:
    """Return the output of a command without printing it."""
    done = subprocess.run([REMUDA, *words], env=_environment(kubeconfig), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(
            f"`{shlex.join(('remuda', *words))}` failed with exit code {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


def _environment(kubeconfig: Path) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig)}


# ---- the management plane --------------------------------------------------------------------------------------------


def start(listen: str) -> None:
    remuda("up", "--detach", "--data-dir", str(FOLDER), "--listen", listen)


def running() -> int:
    """Return the process id of the demo's management plane, or 0."""
    command = [str(REMUDA), "status", "--data-dir", str(FOLDER), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(json.loads(done.stdout or "{}").get("pid", 0))


def clean() -> None:
    """Remove the machines, processes and files of a demo. A management plane that was killed is started once more,
    because only it knows its machines. Raises OthersUse before anything is removed."""
    if not FOLDER.exists():
        return
    if (FOLDER / "state.db").exists():
        if not running():
            start(_listened())
        refuse_others()
        remuda("delete", "cluster", CLUSTER, "-n", NAMESPACE, "--yes", "--ignore-not-found", "--timeout", "3m")
    if running():
        remuda("down", "--data-dir", str(FOLDER))
    shutil.rmtree(FOLDER)
    show(f"the cluster, its machines, `remuda up` and {FOLDER} are removed")


def refuse_others() -> None:
    """Raise OthersUse if clusters of the user would lose their management plane while their hosts run on."""
    names = {_place(one, one["metadata"]["name"]): 0 for one in _items("clusters.provisioning.cattle.io")}
    for machine in _items("machines.cluster.x-k8s.io"):
        place = _place(machine, machine["spec"]["clusterName"])
        names[place] = names.get(place, 0) + 1
    names.pop((NAMESPACE, CLUSTER), None)
    if not names:
        return
    known = [
        f"  {namespace}/{name}: {amount} {'machine' if amount == 1 else 'machines'}"
        for (namespace, name), amount in sorted(names.items())
    ]
    advice = [f"  {_command()} delete cluster {name} -n {namespace}" for namespace, name in sorted(names)]
    raise OthersUse(
        "\n".join(
            [
                f"{FOLDER} also manages clusters that the demo did not create. Nothing was removed:",
                *known,
                "Their hosts would go on running without it. Delete these clusters, then repeat `make demo-clean`:",
                f"  export KUBECONFIG={ADMIN.absolute()}",
                *advice,
            ]
        )
    )


def _items(kind: str) -> list[dict[str, Any]]:
    return list(json.loads(ask("get", kind, "-o", "json"))["items"])


def _place(obj: dict[str, Any], name: str) -> tuple[str, str]:
    return str(obj["metadata"]["namespace"]), name


def _command() -> str:
    return "remuda" if shutil.which("remuda") else str(REMUDA)


def _listened() -> str:
    """Return the previous listening address: the hosts know no other."""
    for line in LOG.read_text(errors="replace").splitlines() if LOG.exists() else ():
        if line.startswith("remuda ready at https://"):
            return line.removeprefix("remuda ready at https://").split()[0]
    return "127.0.0.1:0"


# ---- the demo --------------------------------------------------------------------------------------------------------


def demo() -> None:
    try:
        ground = choose()
    except Impossible as error:
        raise Failed(str(error)) from None
    say(f"{BOLD}Remuda: create a cluster from nothing and change it in place.{PLAIN}")
    say(f"Driver that creates the machines: {BOLD}{ground.driver}{PLAIN}, {ground.why}")
    if ground.k3s:
        say(f"They run {BOLD}{ground.k3s}{PLAIN}, the real distribution.")
    else:
        say("They run nano, a stand-in for K3s that runs no Pods; everything else is real.")
    title("1. Start the management plane: one process, nothing to install")
    FOLDER.mkdir(mode=0o700)
    start(ground.listen)
    type_(f"export KUBECONFIG={ADMIN}")
    title("2. Create a cluster of three machines")
    if ground.k3s:
        create_k3s(ground.k3s)
    else:
        create_nano(ground.driver)
    title("3. List its nodes, through the tunnel that its server opened")
    remuda("get", "kubeconfig", CLUSTER, into=INSIDE)
    remuda("get", "nodes", "--kubeconfig", str(INSIDE))
    change()


def create_nano(driver: str) -> None:
    wanted = [CLUSTER, "--driver", driver, "--distribution", "nano", "--servers", "1", "--workers", "2"]
    FILE.write_text(ask("create", "cluster", *wanted, "--dry-run"))
    remuda("create", "cluster", *wanted, "--wait", "--timeout", "5m")


def create_k3s(k3s: K3s) -> None:
    """Create the cluster from a file with settings for such hosts that the command has no options for."""
    release = FOLDER / "k3s"  # the name it is released under
    release.symlink_to(k3s.program)
    remuda("artefacts", "add", "k3s", k3s.version, str(release), "--data-dir", str(FOLDER))
    lines = K3S_EXAMPLE.read_text().replace(K3S_EXAMPLE_CLUSTER, CLUSTER).splitlines(keepends=True)
    version = "  kubernetesVersion: "
    FILE.write_text("".join(f"{version}{k3s.version}\n" if line.startswith(version) else line for line in lines))
    say(f"{FILE} is a copy of {K3S_EXAMPLE.parent.name}/{K3S_EXAMPLE.name} with this name and version")
    remuda("apply", "-f", str(FILE), "--wait", "--timeout", "15m")


def change() -> None:
    title("4. Change a setting in place")
    before = machines()
    label_workers()
    say(f"{FILE} is the manifest of this cluster. Add to its workers: {BOLD}labels: {{tier: web}}{PLAIN}")
    remuda("plan", "-f", str(FILE))
    remuda("apply", "-f", str(FILE), "--wait", "--timeout", "5m")
    until_labelled()
    remuda("get", "nodes", "-l", "tier=web", "--kubeconfig", str(INSIDE))
    remuda("describe", "cluster", CLUSTER)
    if machines() != before:
        raise Failed(f"machines were replaced: {before} before, {machines()} now")
    show("the same three machines as before: same names, same UIDs")


def label_workers() -> None:
    lines = FILE.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() in ("name: workers", "- name: workers"))
    indent = " " * (len(lines[at]) - len(lines[at].lstrip(" -")))
    lines.insert(at + 1, f"{indent}labels: {{tier: web}}")
    FILE.write_text("\n".join(lines) + "\n")


def until_labelled() -> None:
    """Wait for the label on the Nodes, which appears a moment after the last machine has restarted."""
    deadline = time.monotonic() + _LABEL_SECONDS
    said = time.monotonic()
    while (
        len(json.loads(ask("get", "nodes", "-l", "tier=web", "-o", "json", "--kubeconfig", str(INSIDE)))["items"]) < 2
    ):
        if time.monotonic() > deadline:
            raise Failed(f"the workers do not have the label after {_LABEL_SECONDS} s")
        if time.monotonic() - said > _QUIET_SECONDS:
            said = time.monotonic()
            say("waiting until the Nodes have the label")
        time.sleep(0.5)


def machines() -> dict[str, str]:
    found = json.loads(ask("get", "machines", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}


def next_steps() -> None:
    title("The cluster keeps running. What to try next:")
    bin = REMUDA.parent if not shutil.which("remuda") else None
    if bin:
        say(f'  export PATH="{bin}:$PATH"')
    say(f"  export KUBECONFIG={ADMIN.absolute()}")
    say(f"  remuda scale {CLUSTER} --workers 3 --wait        # add a machine")
    say("  remuda get machines                            # or any other kind")
    say(f"  remuda why {CLUSTER} --timeline                  # what happened when")
    say("  remuda machine logs --help                     # logs of machines")
    say(f"  remuda get nodes --kubeconfig {INSIDE}")
    say(f"Stop it and remove everything: {BOLD}make demo-clean{PLAIN}")


def main() -> int:
    if sys.argv[1:] == ["clean"]:
        return _cleaned()
    ends = os.environ.get("DEMO_EXIT", "") not in ("", "0")
    if pid := running():
        say(f"A demo is already running (process {pid}).")
        next_steps()
        return int(ends)
    began = time.monotonic()
    try:
        if FOLDER.exists():
            say(f"Cleaning up {FOLDER} of an earlier demo first.")
            clean()
        demo()
        show(f"done in {time.monotonic() - began:.0f} s")
        if ends:
            title("Clean up")
            clean()
        else:
            next_steps()
    except KeyboardInterrupt:
        say(f"\n{BOLD}Interrupted:{PLAIN} deleting the cluster and stopping the management plane.")
        return _cleaned() or 130
    except OthersUse as others:
        say(f"{RED}✗{PLAIN} {others}")
        return 1
    except Failed as failed:
        say(f"{RED}✗{PLAIN} {failed}")
        show_log()
        if ends or not FOLDER.exists():
            return _cleaned() or 1
        say(f"Everything is left running. To find the cause: KUBECONFIG={ADMIN} remuda why {CLUSTER}")
        say("Remove it with: make demo-clean")
        return 1
    return 0


def show_log() -> None:
    lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
    shown = [line for line in lines if " INFO remuda.audit: " not in line]
    if shown:
        say("\n".join([f"The last lines of {LOG}:", *shown[-10:]]))


def _cleaned() -> int:
    try:
        clean()
    except KeyboardInterrupt:
        say("\nInterrupted: some parts may be left. To remove them, run `make demo-clean`.")
        return 130
    except OthersUse as others:
        say(f"{RED}✗{PLAIN} {others}")
        return 1
    except Failed as failed:
        say(f"{RED}✗{PLAIN} {failed}\nSome parts are left: see {LOG}, and run `make demo-clean` again.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
