"""Claim: a file on the server that names the machine using it. Pure: the scripts to run, and their answers.

It is on the server because only there all possible users meet: machines, clusters and management planes. A hard link
creates it atomically, so the first claimant wins; only its holder removes it. A server without a claim but with an
agent belongs to a manager that writes no claims, and is left alone. So an agent on a server of ours was installed by
us, and is uninstalled by us.

A login that names a REMUDA_HOST_ROOT has its file system there.
"""

from __future__ import annotations

import shlex

import msgspec

from remuda.providers import ProviderError
from remuda.providers.shared.drivers.spi import TAG_CLUSTER, TAG_MACHINE, TAG_OWNER, TAG_UID, Order

_PLACE = """
root=${REMUDA_HOST_ROOT:-}
folder=$root/etc/remuda
file=$folder/claim.json
etc=$root/etc/rancher/agent
var=$root/var/lib/rancher/agent
foreign() { [ ! -e "$file" ] && { [ -e "$etc/config.yaml" ] || [ -e "$var/rancher2_connection_info.json" ]; }; }
"""

_MARK = "-- remuda --"  # output before it comes from the server's own login scripts

_FOREIGN = "an agent without a claim"

_ANSWER = f"""
echo '{_MARK}'
if [ -n "$root" ]; then cat "$root/etc/hostname"; else uname -n; fi
if [ -e "$file" ]; then cat "$file"; elif foreign; then echo '{_FOREIGN}'; fi
"""

_LOOK = f"""
{_PLACE}
{_ANSWER}
"""

_TAKE = f"""
set -eu
umask 077
{_PLACE}
if ! foreign; then
    mkdir -p "$folder"
    draft=$folder/.claim-$$
    printf '%s\\n' @claim@ >"$draft"
    sync "$draft" 2>/dev/null || sync
    ln "$draft" "$file" 2>/dev/null || :
    rm -f "$draft"
    [ -e "$file" ]
fi
{_ANSWER}
"""

# Either agent may be there, half installed or not at all. What their plans have installed stays.
_UNINSTALL = f"""
set -u
{_PLACE}
for program in remuda-agent-uninstall.sh rancher-system-agent-uninstall.sh; do
    for prefix in /usr/local /opt/rancher-system-agent /opt/remuda-agent; do
        if [ -x "$root$prefix/bin/$program" ]; then "$root$prefix/bin/$program" 2>&1 || exit 1; fi
    done
done
rm -rf "$etc" "$var"
rmdir "$root/etc/rancher" "$root/var/lib/rancher" 2>/dev/null || :
"""

_RELEASE = f"""
{_PLACE}
rm -f "$file" "$folder"/.claim-*
rmdir "$folder" 2>/dev/null || :
[ ! -e "$file" ]
"""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    cluster: str
    machine: str
    uid: str
    name: str

    @property
    def tags(self) -> dict[str, str]:
        return {TAG_OWNER: self.owner, TAG_CLUSTER: self.cluster, TAG_MACHINE: self.machine, TAG_UID: self.uid}


class ServerView(msgspec.Struct, frozen=True):
    """A server as it was seen."""

    hostname: str
    claim: Claim | None
    foreign: bool = False  # another program uses the server and writes no claims


class Unreadable(ProviderError):
    """The server's answer cannot be decoded."""


def of_order(order: Order) -> Claim:
    tags = order.tags
    return Claim(
        owner=tags[TAG_OWNER],
        cluster=tags[TAG_CLUSTER],
        machine=tags[TAG_MACHINE],
        uid=tags[TAG_UID],
        name=order.name,
    )


def look() -> str:
    return _LOOK


def take(claim: Claim) -> str:
    """Return a script that claims the server; it answers like `look`, with the claim of the first claimant."""
    return _TAKE.replace("@claim@", shlex.quote(msgspec.json.encode(claim).decode()))


def uninstall() -> str:
    return _UNINSTALL


def release() -> str:
    """Return a script that removes the claim. Only its holder may run it."""
    return _RELEASE


def read(output: str) -> ServerView:
    _, mark, answer = output.partition(f"{_MARK}\n")
    if not mark:
        raise Unreadable("it did not run the script; is the user's login shell a POSIX shell?")
    hostname, _, content = answer.partition("\n")
    if not content.strip():
        return ServerView(hostname.strip(), None)
    if content.strip() == _FOREIGN:
        return ServerView(hostname.strip(), None, foreign=True)
    try:
        return ServerView(hostname.strip(), msgspec.json.decode(content, type=Claim))
    except msgspec.MsgspecError:
        raise Unreadable(
            "cannot decode its /etc/remuda/claim.json; if the server is unused, delete that file"
        ) from None
