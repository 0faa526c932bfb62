"""Hand-over of the data to another member, when the server that has it is asked to leave.

There are never two leaders. Once the copy is made, nothing is written. The new leader asks once more before it uses the
copy as the data (`confirm`); after that the old leader cannot go back. If an old leader is killed meanwhile, it finds
its intent on disk and asks the new leader for the result before it serves again. If the new leader is lost in between,
the cluster is lost, as with the loss of the leader.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import msgspec

from remuda.apiserver.storage.backup import ArchiveError, backup, restore
from remuda.kube.client import Client
from remuda.kube.web import Request, Response, Result, Sink, Stream, text
from remuda.lab.nano import membership_client
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.follower import REMOVED, Follower, LeadershipMoved
from remuda.lab.nano.layout import NanoLayout, read_or_none, write_file
from remuda.lab.nano.leader import Leader
from remuda.lab.nano.members import Member, MemberList, MemberRefused
from remuda.lab.nano.nodes import NODES, mark_removed
from remuda.lab.nano.supervisor import Requester
from remuda.lab.nano.supervisor_client import Caller, NoAnswer, UnexpectedAnswer

log = logging.getLogger(__name__)

LEADER_CHANGED = "etcdserver: leader changed"
_TAKE_SECONDS = 120.0
_ASK_SECONDS = 10.0
_AGAIN_SECONDS = 2.0
_DENIALS = 3
_PIECE = 256 * 1024
_MOST_DATA = 1 << 31


class HandoverIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a hand-over, on disk from before the new leader is asked until the outcome is known."""

    new_leader: Member = msgspec.field(name="heir")  # on disk under the name of earlier releases
    successor: MemberList  # the list under the new leader, without this server
    source: str  # where the new leader gets the data


# ---- the leaving server ------------------------------------------------------------------------------------------


class HandoverSender:
    def __init__(self, leader: Leader, layout: NanoLayout, caller: Caller, client: Client) -> None:
        self.left = asyncio.Event()
        self._leader = leader
        self._layout = layout
        self._caller = caller
        self._client = client
        self._copy = layout.db / "hand-over.tar"
        self._confirmed = False
        self._intent: HandoverIntent | None = None

    async def hand_over(self, node: str) -> None:
        """Hand over the data. `node`: the Node that shows that it has left; empty if the Node is deleted. Raise
        MemberRefused, StatusError.
        """
        own = self._leader.own.member
        intent = self._decide(own)
        if node:
            # Write this before writes are refused, so that the copy contains it.
            await mark_removed(self._client, node, own, self._layout.flavour)
        self._leader.handing_over = LEADER_CHANGED
        self._intent, self._confirmed = intent, False
        log.warning("etcd: %s is leaving; handing its data over to %s", own, intent.new_leader.name)
        try:
            await asyncio.to_thread(self._prepare, intent)
            taken = await self._ask(intent)
        except (ArchiveError, OSError) as error:
            log.warning("cannot copy the data: %s", error)
            taken = False
        if taken or await self._has_taken(intent):
            finish(self._layout, intent)
            self.left.set()
            return
        await self._take_back(node)

    def _decide(self, own: str) -> HandoverIntent:
        members, alive = self._leader.members, self._leader.alive()
        rest = members.remove(own, alive)
        new_leader = next(voter for voter in rest.voters if voter.name in alive)
        successor = msgspec.structs.replace(rest, term=members.term + 1, leader=new_leader.name)
        return HandoverIntent(new_leader=new_leader, successor=successor, source=self._leader.own.url)

    def _prepare(self, intent: HandoverIntent) -> None:
        backup(self._layout.engine, self._copy, patterns=(), force=True)
        write_file(self._layout.hand_over, msgspec.json.encode(intent))

    async def _ask(self, intent: HandoverIntent) -> bool:
        """Ask the new leader to take over and return whether it confirms that it has the data."""
        try:
            await self._caller.ask(
                "POST",
                f"{intent.new_leader.url}{self._layout.flavour.prefix}/etcd/take-over",
                body=msgspec.json.encode(intent),
                seconds=_TAKE_SECONDS,
            )
        except (NoAnswer, UnexpectedAnswer) as error:
            log.warning("%s has not confirmed that it received the data: %s", intent.new_leader.name, error)
            return False
        return True

    async def _has_taken(self, intent: HandoverIntent) -> bool:
        """Return whether the new leader has the data, with certainty. Without our confirmation no member can have it.
        With one, only the new leader knows; it must deny it several times, because it may be about to take it.
        """
        self._intent = None  # from now on it cannot be confirmed
        denied = 0
        while self._confirmed and denied < _DENIALS:
            taken = await has_taken(self._caller, self._layout, intent)
            if taken:
                return True
            denied = denied + 1 if taken is False else 0
            await asyncio.sleep(_AGAIN_SECONDS)
        return False

    async def _take_back(self, node: str) -> None:
        self._intent = None
        self._layout.hand_over.unlink(missing_ok=True)
        self._copy.unlink(missing_ok=True)
        self._leader.handing_over = ""
        if node:
            said = {self._layout.flavour.etcd("removed-node-name"): None}
            await self._client.patch(NODES, "", node, {"metadata": {"annotations": said}})
        raise MemberRefused("the data could not be given to another member")

    async def run(self) -> None:
        """Run until this server has left; then raise FatalError."""
        await self.left.wait()
        raise FatalError(REMOVED.format(self._layout.db))

    # -- requests of the new leader --------------------------------------------------------------------------

    async def data(self, request: Request, who: Requester) -> Result:
        if self._intent is None:
            return text(409, "the data is not being given away\n")

        async def produce(sink: Sink) -> None:
            with self._copy.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE):
                    sink.write(piece)
                    await sink.drain()

        return Stream(produce)

    async def confirm(self, request: Request, who: Requester) -> Result:
        if self._intent is None:
            return text(409, "the data is not being given away\n")
        self._confirmed = True
        return text(200, "ok")


async def has_taken(caller: Caller, layout: NanoLayout, intent: HandoverIntent) -> bool | None:
    """Return whether the new leader has the data; None if it does not answer."""
    try:
        answer = await caller.ask(
            "GET", f"{intent.new_leader.url}{layout.flavour.prefix}/cluster", seconds=_ASK_SECONDS
        )
        return msgspec.json.decode(answer, type=MemberList).term >= intent.successor.term
    except (NoAnswer, UnexpectedAnswer, msgspec.DecodeError, msgspec.ValidationError):
        return None


def finish(layout: NanoLayout, intent: HandoverIntent) -> None:
    # The tombstone comes first: a server that is killed after it never serves its old data again.
    write_file(layout.tombstone, b"")
    membership_client.save(layout.cluster, intent.successor)
    layout.hand_over.unlink(missing_ok=True)
    (layout.db / "hand-over.tar").unlink(missing_ok=True)


async def settle(layout: NanoLayout, caller: Caller) -> None:
    """Finish or undo a hand-over that was cut off, when a leader starts. Raises FatalError if this server has left."""
    content = read_or_none(layout.hand_over)
    if content is None:
        return
    intent = msgspec.json.decode(content, type=HandoverIntent)
    while (taken := await has_taken(caller, layout, intent)) is None:
        log.warning(
            "the data was being handed over to %s, which has not confirmed that it received it", intent.new_leader.name
        )
        await asyncio.sleep(_AGAIN_SECONDS)
    if taken:
        finish(layout, intent)
        raise FatalError(REMOVED.format(layout.db))
    layout.hand_over.unlink()


# ---- the new leader ----------------------------------------------------------------------------------------------


class HandoverReceiver:
    def __init__(self, follower: Follower, layout: NanoLayout, caller: Caller) -> None:
        self.inherited = asyncio.Event()
        self._follower = follower
        self._layout = layout
        self._caller = caller
        self._busy = False

    async def take_over(self, request: Request) -> Response:
        intent = msgspec.json.decode(await request.body(1 << 20), type=HandoverIntent)
        if intent.successor.leader != self._follower.own.member or self._busy or self.inherited.is_set():
            return text(409, "this server cannot take the data\n")
        self._busy = True
        try:
            await self._fetch(intent.source)
            await self._caller.ask(
                "POST", f"{intent.source}{self._layout.flavour.prefix}/etcd/confirm", seconds=_ASK_SECONDS
            )
            self._follower.remember(intent.successor)
        except (NoAnswer, UnexpectedAnswer, ArchiveError, OSError) as error:
            log.warning("cannot copy the data of the previous leader: %s", error)
            return text(503, f"{error}\n")
        finally:
            self._busy = False
        log.warning("etcd: this server now holds the data")
        asyncio.get_running_loop().call_later(0.1, self.inherited.set)  # after the answer is sent
        return text(200, "ok")

    async def _fetch(self, source: str) -> None:
        archive = self._layout.db / "take-over.tar"
        url = f"{source}{self._layout.flavour.prefix}/etcd/data"
        content = await self._caller.ask("GET", url, seconds=_TAKE_SECONDS, most=_MOST_DATA)
        await asyncio.to_thread(_restore, archive, content, self._layout.engine)

    async def run(self) -> None:
        """Raise LeadershipMoved when this server has the data."""
        await self.inherited.wait()
        raise LeadershipMoved


def _restore(archive: Path, content: bytes, engine: Path) -> None:
    write_file(archive, content)
    shutil.rmtree(engine, ignore_errors=True)  # left by an attempt that was not confirmed
    try:
        restore(archive, engine)
    finally:
        archive.unlink(missing_ok=True)
