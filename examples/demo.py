"""The demo (`make demo`): from nothing to a cluster of three machines that is changed in place, with the commands
that anybody would type. Each is shown before it runs, so that the demo can be repeated by hand.

Everything is in one folder, ./remuda-demo. What a demo started is stopped by its end with DEMO_EXIT=1, by Ctrl-C, or by
`make demo-clean`; the cluster is deleted first, so that none of its machines is left. Only the standard library is
used here.

    DEMO_EXIT=1         clean up and end with the result, instead of leaving everything running
    DEMO_DRIVER=process where machines are made; nspawn is taken for root on a machine that has it, process else
    DEMO_DISTRO=k3s     real k3s on hosts in nspawn, instead of nano; DEMO_K3S=FILE says where its program is
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from ground import Ground, Impossible, K3s, choose

FOLDER = Path("remuda-demo")
LOG, PID = FOLDER / "up.log", FOLDER / "up.pid"
ADMIN, INSIDE, FILE = FOLDER / "admin.kubeconfig", FOLDER / "prairie.kubeconfig", FOLDER / "prairie.yaml"
REMUDA = Path(sys.executable).with_name("remuda")
CLUSTER = "prairie"
K3S_EXAMPLE = Path(__file__).with_name("k3s-nspawn.yaml")

_START_SECONDS, _STOP_SECONDS, _LABEL_SECONDS = 60, 30, 60
_TERMINAL = sys.stdout.isatty()
BOLD, DIM, GREEN, RED, PLAIN = (
    ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m") if _TERMINAL else ("", "", "", "", "")
)


class Failed(Exception):
    """The demo cannot go on; the text says why."""


# ---- on paper --------------------------------------------------------------------------------------------------------


def say(text: str = "") -> None:
    print(text, flush=True)


def title(text: str) -> None:
    say(f"\n{BOLD}{text}{PLAIN}")


def type_(command: str) -> None:
    """As on a terminal of 80 columns."""
    lines = textwrap.wrap(command, 74, break_long_words=False, break_on_hyphens=False)
    say(f"{DIM}${PLAIN} {BOLD}" + " \\\n    ".join(lines) + PLAIN)


def show(text: str) -> None:
    say(f"{GREEN}✓{PLAIN} {text}")


# ---- commands --------------------------------------------------------------------------------------------------------


def remuda(*words: str, into: Path | None = None, kubeconfig: Path = ADMIN) -> None:
    """One command as it would be typed, with what it prints."""
    shown = shlex.join(("remuda", *words)) + (f" > {into}" if into else "")
    type_(shown)
    target = into.open("w") if into else None
    try:
        done = subprocess.run([REMUDA, *words], env=_environment(kubeconfig), stdout=target, check=False)
    finally:
        if target:
            target.close()
    if done.returncode:
        raise Failed(f"`{shown}` ended with {done.returncode}")


def ask(*words: str, kubeconfig: Path = ADMIN) -> str:
    """What a command prints, without showing it."""
    done = subprocess.run([REMUDA, *words], env=_environment(kubeconfig), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"`{shlex.join(('remuda', *words))}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _environment(kubeconfig: Path) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig)}


# ---- the management plane --------------------------------------------------------------------------------------------


def start(ground: Ground) -> None:
    words = ["up", "--data-dir", str(FOLDER), "--listen", ground.listen]
    type_(f"remuda {shlex.join(words)} > {LOG} 2>&1 &")
    say(launch(words))


def launch(words: list[str]) -> str:
    """In a session of its own, so that a Ctrl-C at the demo is not one at it. Returns its ready line."""
    LOG.touch(mode=0o600)
    began = LOG.stat().st_size
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            [REMUDA, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    PID.write_text(str(process.pid))
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        said = LOG.read_bytes()[began:].decode(errors="replace").splitlines()
        for line in said:
            if line.startswith("remuda ready at "):
                return line
        if process.poll() is not None:
            raise Failed("\n".join(["`remuda up` has ended:", *said[-5:]]))
        time.sleep(0.05)
    raise Failed(f"`remuda up` is not ready after {_START_SECONDS} s; see {LOG}")


def running() -> int:
    """The process of a demo that goes on, or 0. A number that somebody else has by now does not count."""
    try:
        pid = int(PID.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return 0
    return pid if b"up" in command and str(FOLDER).encode() in command else 0


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while running() == pid:
        try:
            os.waitpid(pid, os.WNOHANG)  # ours to collect, if this demo started it
        except ChildProcessError:
            pass
        if time.monotonic() > deadline:
            raise Failed(f"`remuda up`, process {pid}, does not end")
        time.sleep(0.05)


def clean() -> None:
    """Nothing of a demo is left: neither machines, nor processes, nor files. One that was killed is started once more,
    because only it knows its machines."""
    if not FOLDER.exists():
        return
    if (FOLDER / "state.db").exists():
        pid = running()
        if not pid:
            launch(["up", "--data-dir", str(FOLDER), "--listen", _listened()])
            pid = running()
        remuda("delete", "cluster", CLUSTER, "--yes", "--ignore-not-found", "--timeout", "3m")
        stop(pid)
    elif pid := running():
        stop(pid)
    shutil.rmtree(FOLDER)
    show(f"the cluster, its machines, `remuda up` and {FOLDER} are gone")


def _listened() -> str:
    """Where the one before did: its hosts know no other address."""
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
    say(f"{BOLD}Remuda: from nothing to a cluster that is changed in place.{PLAIN}")
    say(f"Machines are made by the driver {BOLD}{ground.driver}{PLAIN}: {ground.why}")
    if ground.k3s:
        say(f"They run {BOLD}{ground.k3s}{PLAIN}, the real one.")
    else:
        say("They run nano, a stand-in for K3s: everything is real but Pods, of which it runs none.")
    title("1. The management plane: one process, nothing installed before")
    FOLDER.mkdir(mode=0o700)
    start(ground)
    type_(f"export KUBECONFIG={ADMIN}")
    title("2. A cluster of three machines")
    if ground.k3s:
        create_k3s(ground.k3s)
    else:
        create_nano(ground.driver)
    title("3. Its nodes, through the tunnel that its server has opened")
    remuda("get", "kubeconfig", CLUSTER, into=INSIDE)
    remuda("get", "nodes", "--kubeconfig", str(INSIDE))
    change()


def create_nano(driver: str) -> None:
    wanted = [CLUSTER, "--driver", driver, "--distribution", "nano", "--servers", "1", "--workers", "2"]
    FILE.write_text(ask("create", "cluster", *wanted, "--dry-run"))
    remuda("create", "cluster", *wanted, "--wait", "--timeout", "5m")


def create_k3s(k3s: K3s) -> None:
    """From a file: it says what such hosts need, which is nothing that a command should have options for."""
    release = FOLDER / "k3s"  # the name it is released under
    release.symlink_to(k3s.program)
    remuda("artefacts", "add", "k3s", k3s.version, str(release), "--data-dir", str(FOLDER))
    lines = K3S_EXAMPLE.read_text().splitlines(keepends=True)
    version = "  kubernetesVersion: "
    FILE.write_text("".join(f"{version}{k3s.version}\n" if line.startswith(version) else line for line in lines))
    say(f"{FILE} is {K3S_EXAMPLE.parent.name}/{K3S_EXAMPLE.name} with this version")
    remuda("apply", "-f", str(FILE), "--wait", "--timeout", "15m")


def change() -> None:
    title("4. A setting is changed in place")
    before = machines()
    label_workers()
    say(f"{FILE} is the same cluster as a file; its workers get a line: {BOLD}labels: {{tier: web}}{PLAIN}")
    remuda("plan", "-f", str(FILE))
    remuda("apply", "-f", str(FILE), "--wait", "--timeout", "5m")
    until_labelled()
    remuda("get", "nodes", "-l", "tier=web", "--kubeconfig", str(INSIDE))
    remuda("describe", "cluster", CLUSTER)
    if machines() != before:
        raise Failed(f"machines have been replaced: {before} before, {machines()} now")
    show("the same three machines as before: same names, same UIDs")


def label_workers() -> None:
    lines = FILE.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() in ("name: workers", "- name: workers"))
    indent = " " * (len(lines[at]) - len(lines[at].lstrip(" -")))
    lines.insert(at + 1, f"{indent}labels: {{tier: web}}")
    FILE.write_text("\n".join(lines) + "\n")


def until_labelled() -> None:
    """The cluster's own Nodes say it a moment after the last machine has started again."""
    deadline = time.monotonic() + _LABEL_SECONDS
    while (
        len(json.loads(ask("get", "nodes", "-l", "tier=web", "-o", "json", "--kubeconfig", str(INSIDE)))["items"]) < 2
    ):
        if time.monotonic() > deadline:
            raise Failed(f"the label has not come to both workers within {_LABEL_SECONDS} s")
        time.sleep(0.5)


def machines() -> dict[str, str]:
    found = json.loads(ask("get", "machines", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}


def next_steps() -> None:
    title("It goes on running. What to try next:")
    bin = REMUDA.parent if not shutil.which("remuda") else None
    if bin:
        say(f'  export PATH="{bin}:$PATH"')
    say(f"  export KUBECONFIG={ADMIN.absolute()}")
    say(f"  remuda scale {CLUSTER} --workers 3 --wait        # a machine more")
    say("  remuda get machines                            # or any other kind")
    say(f"  remuda why {CLUSTER} --timeline                  # what happened when")
    say("  remuda machine logs --help                     # what made a machine")
    say(f"  remuda get nodes --kubeconfig {INSIDE}")
    say(f"Stop it and remove everything: {BOLD}make demo-clean{PLAIN}")


def main() -> int:
    if sys.argv[1:] == ["clean"]:
        return _cleaned()
    ends = os.environ.get("DEMO_EXIT", "") not in ("", "0")
    if pid := running():
        say(f"A demo is running already (process {pid}).")
        next_steps()
        return int(ends)
    began = time.monotonic()
    try:
        if FOLDER.exists():
            say(f"There is a {FOLDER} of a demo that has ended; it is cleaned up first.")
            clean()
        demo()
        show(f"that took {time.monotonic() - began:.0f} s")
        if ends:
            title("The end")
            clean()
        else:
            next_steps()
    except KeyboardInterrupt:
        say(f"\n{BOLD}Interrupted:{PLAIN} what was started is stopped, and its machines are deleted.")
        return _cleaned() or 130
    except Failed as failed:
        say(f"{RED}✗{PLAIN} {failed}")
        tell_log()
        if ends or not FOLDER.exists():
            return _cleaned() or 1
        say(f"Everything is left as it is, to be looked at: KUBECONFIG={ADMIN} remuda why {CLUSTER}")
        say("Remove it with: make demo-clean")
        return 1
    return 0


def tell_log() -> None:
    lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
    told = [line for line in lines if " INFO remuda.audit: " not in line]
    if told:
        say("\n".join([f"The last lines of {LOG}:", *told[-10:]]))


def _cleaned() -> int:
    try:
        clean()
    except KeyboardInterrupt:
        say("\nInterrupted: something may be left. `make demo-clean` goes on with it.")
        return 130
    except Failed as failed:
        say(f"{RED}✗{PLAIN} {failed}\nSomething is left: look at {LOG}, and run `make demo-clean` again.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
